"""The share of the work that does not shrink. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression


def serial_share(points: Sequence[tuple[int, float]]) -> float | None:
    """0 to 1, of (n, seconds with n threads or lanes); None: fewer than two counts.

    The seconds are taken as t(n) = a + b / n, fitted by least squares, and a / (a + b) is the share
    of t(1) that no number of threads takes away (G. M. Amdahl, Validity of the single processor
    approach to achieving large scale computing capabilities, AFIPS 1967). Where more of them take
    longer nothing shrinks: 1.
    """
    if len({n for n, _ in points}) < 2:
        return None
    b, a = linear_regression([1 / n for n, _ in points], [seconds for _, seconds in points])
    if b <= 0:
        return 1.0
    return max(0.0, a) / (max(0.0, a) + b)
