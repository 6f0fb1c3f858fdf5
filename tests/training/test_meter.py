import jax
import pytest

from posenc_jax.training.meter import GIB, Meter, device_memory


def test_speed_time_left_and_utilisation_follow_from_the_seconds_of_a_step():
    meter = Meter(total_steps=100, tokens_per_step=4096, flops_per_step=3e12, peak_flops=8 * 197e12)
    values = meter.read(40, 0.5)
    assert values["tokens_per_second"] == 8192 and values["seconds_left"] == 30
    assert values["mfu"] == pytest.approx(3e12 / 0.5 / (8 * 197e12))


def test_a_chip_that_is_not_known_has_no_utilisation():
    assert "mfu" not in Meter(100, 4096, 3e12).read(1, 0.5)


def test_memory_is_that_of_the_fullest_device_and_missing_where_one_does_not_say(monkeypatch):
    class Device:
        def __init__(self, stats):
            self.memory_stats = lambda: stats

    stats = [{"peak_bytes_in_use": GIB}, {"peak_bytes_in_use": 3 * GIB}]
    monkeypatch.setattr(jax, "local_devices", lambda: [Device(one) for one in stats])
    assert device_memory() == {"memory_gib": 3.0}
    stats.append(None)
    assert device_memory() == {}
