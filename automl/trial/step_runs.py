"""The steps that were seen of something, in few values: a long trial reports a million of them.

A set of a million steps takes 60 MB, and an entry of a dictionary for each of them twice that.
"""

from __future__ import annotations

from bisect import bisect_right


class StepRuns:
    """A set of steps, kept as runs of equal distance: `0, 1, 2, …` or `0, 100, 200, …`.

    Steps that come in any other order are kept one by one.
    """

    __slots__ = ("_begins", "_runs", "_single")

    def __init__(self) -> None:
        self._runs: list[range] = []
        """Ascending, none within another."""
        self._begins: list[int] = []
        """The first step of each run."""
        self._single: set[int] = set()
        """Steps that came after a later one."""

    def __contains__(self, step: int) -> bool:
        if not self._runs or step > self._runs[-1][-1]:
            return False
        return step in self._runs[bisect_right(self._begins, step) - 1] or step in self._single

    def add(self, step: int) -> None:
        """Add a step, which may be there."""
        last = self._runs[-1] if self._runs else None
        if last is None or (step > last[-1] and len(last) > 1 and step != last[-1] + last.step):
            self._runs.append(range(step, step + 1))
            self._begins.append(step)
        elif step > last[-1]:
            distance = step - last[-1]
            self._runs[-1] = range(last.start, step + distance, distance)
        elif step not in self:
            self._single.add(step)
