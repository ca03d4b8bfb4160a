"""What is said of memory at the end of a sweep."""

from __future__ import annotations

import pytest

from automl.admission.summary import memory_line
from automl.trial import UNKNOWN, Request, RequestSource

ALONE = Request(None, RequestSource.RAN_OUT, alone=True)
GROWN = Request(15, RequestSource.RAN_OUT)


@pytest.mark.parametrize(
    ("trials", "line"),
    [
        (
            [(Request(121), 100)] * 97 + [(GROWN, 14)],
            "memory: 97 of 98 trials within their request (median 1.21 times the peak), "
            "1 ran out and ran again",
        ),
        (
            [(Request(9), 10), (Request(20), 10), (Request(10), 10)],
            "memory: 2 of 3 trials within their request (median 1.00 times the peak)",
        ),
        (
            [(Request(20), 10), (UNKNOWN, 70), (Request(20), 0)],
            "memory: 1 of 1 trial within their request (median 2.00 times the peak)",
        ),
        (
            [(ALONE, 10), (GROWN, 10)],
            "memory: 0 of 2 trials within their request, 2 ran out and ran again",
        ),
        ([(UNKNOWN, 70)], None),
        ([], None),
    ],
)
def test_how_requests_stood_to_peaks(trials: list[tuple[Request, int]], line: str | None) -> None:
    assert memory_line(trials) == line
