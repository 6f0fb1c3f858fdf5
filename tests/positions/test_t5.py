import numpy as np

from posenc_jax.positions.t5 import bucket_of_distance
from tests.oracle import t5_bucket


def test_buckets_begin_at_the_published_distances():
    """tupe.md 1.3: 0-7 exact, then thresholds 8, 12, 16, 23, 32, 46, 64, 91; 16 and 32 never arise."""
    table = bucket_of_distance(511, 32, 128)
    past = table[511::-1]  # distance 0, 1, 2, ... back
    thresholds = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    assert [int(np.argmax(past == bucket)) for bucket in range(16)] == thresholds
    np.testing.assert_array_equal(table[512:], past[1:] + 16)
    assert set(table.tolist()) == set(range(32)) - {16}


def test_buckets_equal_exact_integer_arithmetic():
    for buckets, max_distance in [(32, 128), (12, 20), (64, 500), (8, 3)]:
        table = bucket_of_distance(600, buckets, max_distance)
        want = [t5_bucket(difference, buckets, max_distance) for difference in range(-600, 601)]
        np.testing.assert_array_equal(table, want)
