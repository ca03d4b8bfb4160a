"""The statistics of a footprint against tables and against what defines them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.admission.footprint import nonnegative_least_squares, student_t_quantile_99

# Of any printed table of Student's t, one-sided.
TABLE = {4: 3.7469, 5: 3.3649, 6: 3.1427, 8: 2.8965, 13: 2.6503, 30: 2.4573, 1000: 2.3301}


@pytest.mark.parametrize(("degrees", "quantile"), TABLE.items())
def test_the_quantile_is_that_of_the_table(degrees: int, quantile: float) -> None:
    assert student_t_quantile_99(degrees) == pytest.approx(quantile, rel=2e-3)


numbers = st.floats(-10, 10).map(lambda x: round(x, 3))


@given(
    rows=st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=8),
    scales=st.tuples(*[st.sampled_from([1e-6, 1.0, 1e6])] * 3),
)
def test_no_small_step_within_the_bounds_would_be_better(
    rows: list[tuple[float, ...]], scales: tuple[float, ...]
) -> None:
    """Karush, Kuhn and Tucker: a slope of 0 where x > 0, none downwards where x = 0."""
    scaled = [[a * s for a, s in zip(row[:3], scales, strict=True)] for row in rows]
    gram = [[sum(r[i] * r[j] for r in scaled) for j in range(3)] for i in range(3)]
    for i, scale in enumerate(scales):
        gram[i][i] += 0.1 * scale**2
    moments = [sum(r[i] * row[3] for r, row in zip(scaled, rows, strict=True)) for i in range(3)]
    x = nonnegative_least_squares(gram, moments)
    assert min(x) >= 0
    for i, scale in enumerate(scales):
        slope = (sum(g * v for g, v in zip(gram[i], x, strict=True)) - moments[i]) / scale
        assert slope >= -1e-6
        assert x[i] == 0 or slope == pytest.approx(0, abs=1e-6)


def test_what_would_be_negative_is_nothing_and_the_others_make_up_for_it() -> None:
    """Through (1, 1) and (2, 3) the line has an intercept of -1."""
    assert nonnegative_least_squares([[2, 3], [3, 5]], [4, 7]) == pytest.approx((0, 1.4))
