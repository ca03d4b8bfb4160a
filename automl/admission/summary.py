"""How requests stood to what trials held, said at the end of a sweep. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from automl.trial import Request, RequestSource


def memory_line(trials: Iterable[tuple[Request, int]]) -> str | None:
    """`memory: 97 of 98 trials within their request (median 1.21 times the peak), 1 ran out and ran
    again`; None where no trial was measured.

    `trials`: of each that was measured (peak above 0) the last request and the peak in bytes. A
    trial of unknown size counts only if it ran out of memory before.
    """
    measured = [(request, peak) for request, peak in trials if peak > 0]
    n_again = sum(request.source is RequestSource.RAN_OUT for request, _ in measured)
    ratios = [
        request.memory_bytes / peak
        for request, peak in measured
        if request.memory_bytes is not None and request.source is not RequestSource.RAN_OUT
    ]
    n = len(ratios) + n_again
    if not n:
        return None
    line = f"memory: {sum(r >= 1 for r in ratios)} of {n} trial{'s'[: n > 1]} within their request"
    if ratios:
        line += f" (median {statistics.median(ratios):.2f} times the peak)"
    return line + (f", {n_again} ran out and ran again" if n_again else "")
