"""Steps to a threshold on the published curves of symmetric attention (ddrp_mth_and_symmetric.md 2.5, 2.6)."""

import numpy as np
import pytest

from posenc_jax.analysis.learning import plateau_exit, seed_band, steps_ratio, steps_to

STEPS = [6000, 8000, 10000, 12000, 14000, 16000, 18000, 20000, 22000, 24000, 30000, 35000, 40000, 50000, 75000,
         125000, 150000, 200000]  # fmt: skip
VANILLA = list(zip(STEPS, [57.43, 58.28, 64.08, 66.00, 65.64, 66.57, 67.18, 66.66, 66.28, 65.54, 69.30, 72.56, 73.08,
                           71.08, 77.56, 78.45, 77.94, 78.93], strict=True))  # fmt: skip
SYMMETRIC = list(zip(STEPS, [65.97, 66.16, 66.69, 67.04, 67.09, 67.34, 69.08, 69.68, 70.34, 71.30, 71.52, 71.21, 71.69,
                             71.94, 73.31, 73.90, 73.08, 74.74], strict=True))  # fmt: skip
PAIRWISE = list(zip(STEPS, [60.64, 62.23, 64.08, 65.04, 66.97, 69.93, 71.09, 71.44, 72.30, 73.88, 74.16, 75.84, 75.96,
                            77.23, 78.20, 78.37, 79.19, 79.05], strict=True))  # fmt: skip
"""GLUE of base models by checkpoint, fine-tuning seed 1."""
LOSSES = [(10000, 5.99), (15000, 5.891), (20000, 5.850), (30000, 3.539), (50000, 2.210), (100000, 1.853)]
"""Validation loss of base vanilla."""


def test_steps_to_the_papers_threshold_are_the_published_ones():
    """To a few steps: the scores are printed to 0.01."""
    pairwise, vanilla = (steps_to(curve, 75.0975, falling=False) for curve in (PAIRWISE, VANILLA))
    assert pairwise.step == pytest.approx(32793, abs=15) and vanilla.step == pytest.approx(65507, abs=25)
    assert steps_to(SYMMETRIC, 75.0975, falling=False).step is None
    ratios = steps_ratio(PAIRWISE, VANILLA, [68, 72, 74, 76, 77, 78], falling=False)
    assert ratios == pytest.approx([0.53, 0.62, 0.43, 0.58, 0.66, 0.70], abs=0.006)


def test_one_collapsed_run_moves_the_answer_and_it_says_so():
    """Without its evaluation at 50,000, where CoLA collapsed, vanilla crosses near 56,000 along the line that is left
    (54,000 with that one score of CoLA interpolated)."""
    found = steps_to(VANILLA, 75.0975, falling=False)
    line = 40000 + 35000 * (75.0975 - 73.08) / (77.56 - 73.08)
    assert found.without_one[0] == pytest.approx(line)
    assert found.without_one[1] > 75000  # without the one at 75,000 the line goes to 125,000
    assert any(text == f"with one evaluation left out it is {line:,.0f} to {found.without_one[1]:,.0f}"
               for text in found.caveats)  # fmt: skip
    assert "interpolated between the evaluations at 50,000 and 75,000" in found.caveats


def test_a_curve_that_is_not_monotone_tells_every_crossing():
    found = steps_to(VANILLA, 66.6, falling=False)
    assert [one.reached for one in found.crossings] == [True, False, True]
    assert found.step == found.crossings[0].step and (found.crossings[0].after, found.crossings[0].by) == (16000, 18000)
    assert any(text.startswith("not monotone: reached at") and "lost at" in text for text in found.caveats)


def test_losses_fall_and_scores_rise():
    found = steps_to(LOSSES, 3.0, falling=True)
    assert found.step == pytest.approx(30000 + 20000 * (3.539 - 3.0) / (3.539 - 2.210))
    assert steps_to([(step, -loss) for step, loss in LOSSES], -3.0, falling=False).step == found.step
    assert steps_to(LOSSES, 3.539, falling=True).step == 30000  # at the threshold is reached


def test_a_threshold_never_reached_or_reached_at_once_is_said():
    never = steps_to(LOSSES, 1.0, falling=True)
    assert never.step is None and never.crossings == () and never.without_one is None
    assert never.caveats == ("never reached in 100,000 steps; the best is 1.853 at 100,000",)
    already = steps_to(LOSSES, 6.0, falling=True)
    assert already.step == 10000 and already.caveats == ("at or past it at the first evaluation already, step 10,000",)
    ends = steps_to([(0, 3.0), (10, 2.0), (20, 1.0)], 1.5, falling=True)
    assert (ends.step, ends.without_one) == (15, (15, 15))


def test_the_plateau_ends_at_the_first_evaluation_below_it():
    assert plateau_exit(LOSSES, 5.75) == 30000 and plateau_exit(LOSSES, 5.850) == 20000
    assert plateau_exit(LOSSES, 1.0) is None
    entropy = 6.1
    assert plateau_exit(LOSSES, entropy - 0.1) == 10000


def test_a_ratio_with_a_threshold_that_one_does_not_reach_is_not_a_number():
    assert np.isnan(steps_ratio(SYMMETRIC, VANILLA, [75.1, 70], falling=False)).tolist() == [True, False]


def test_a_band_is_median_and_range_where_all_were_evaluated():
    curves = [[(10, 5.0), (20, 4.0), (30, 3.0)], [(20, 6.0), (10, 1.0), (30, 2.5)], [(10, 2.0), (30, 2.0), (40, 1.0)]]
    band = seed_band(curves)
    assert band.seeds == 3 and band.step_S.tolist() == [10, 30]
    assert band.median_S.tolist() == [2, 2.5] and band.low_S.tolist() == [1, 2] and band.high_S.tolist() == [5, 3]


def test_a_step_written_twice_counts_as_written_last():
    assert steps_to([(0, 3.0), (10, 1.0), (10, 2.5), (20, 2.0)], 2.25, falling=True).step == 15


def test_curves_without_a_common_step_or_a_point_are_refused():
    with pytest.raises(ValueError, match="2 curves have no step in common"):
        seed_band([[(1, 1.0)], [(2, 1.0)]])
    with pytest.raises(ValueError, match="0 curves"):
        seed_band([])
    with pytest.raises(ValueError, match="without points"):
        steps_to([], 1.0, falling=True)
    with pytest.raises(ValueError, match="not finite at step 2"):
        plateau_exit([(1, 1.0), (2, float("nan"))], 0.5)
