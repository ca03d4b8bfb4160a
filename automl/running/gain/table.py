"""What was timed as the rows of a table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from automl.running.gain.amdahl import serial_share
from automl.running.gain.measure import Row
from automl.training.gain.words import Timing, Way

COLUMNS = ("device", "size", "way", "ms/step", "gain", "fixed", "trial")


def table_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """A line for each; a device and a size are named in their first line."""
    lines: list[tuple[str, ...]] = []
    named: tuple[str, str] | None = None
    for place, group in groupby(rows, lambda row: (row.device.name, row.size.name)):
        timings = [row.timing for row in group]
        first = next(row.timing for row in rows if row.size.name == place[1])
        for timing in timings:
            device = place[0] if named is None or named[0] != place[0] else ""
            size = place[1] if named != place else ""
            lines.append((device, size, *_cells(timing, first, timings)))
            named = place
    return lines


def gain(timing: Timing, first: Timing) -> float | None:
    """How many times as fast as the first; None: not known of both."""
    if timing.step_seconds is None or first.step_seconds is None:
        return None
    return first.step_seconds / timing.step_seconds


def way_text(timing: Timing, base: Way) -> str:
    """`2 threads`, `pack of 32`: what differs from one thread, alone, in the base precision."""
    way = timing.way
    words = list(_differences(way, base))
    text = ", ".join(words) if words else f"1 thread, {base.precision.value}"
    return text + " (not native here)" if timing.emulated else text


def _differences(way: Way, base: Way) -> Iterator[str]:
    if way.n_threads > 1:
        yield f"{way.n_threads} threads"
    if way.precision is not base.precision:
        yield way.precision.value
    if way.n_lanes > 1:
        yield f"pack of {way.n_lanes}"
    if way.copies:
        yield "data copied each step"


def _cells(timing: Timing, first: Timing, timings: Sequence[Timing]) -> tuple[str, ...]:
    way = way_text(timing, timings[0].way)
    if timing.step_seconds is None:
        return (f"{way}: {timing.trouble}", "", "", "", "")
    times = gain(timing, first)
    fixed = _fixed(timing, timings)
    trial = "" if timing.trial_seconds is None else f"{timing.trial_seconds:.3g} s"
    per = " per report" if timing.per_report else ""
    return (
        way + per,
        f"{timing.step_seconds * 1000:.3g}",
        "" if times is None else f"{times:.2f}",
        "" if fixed is None else f"{fixed:.0%}",
        trial,
    )


def _fixed(timing: Timing, timings: Sequence[Timing]) -> float | None:
    """The share that does not shrink, in the line of the most threads and of the most lanes."""
    for count in (_n_threads, _n_lanes):
        points = [
            (count(t.way), t.step_seconds)
            for t in timings
            if t.step_seconds is not None and _differs_in(count, t.way, timings[0].way)
        ]
        most = max((n for n, _ in points), default=1)
        if count(timing.way) == most > 1:
            return serial_share(points)
    return None


def _n_threads(way: Way) -> int:
    return way.n_threads


def _n_lanes(way: Way) -> int:
    return way.n_lanes


def _differs_in(count: Callable[[Way], int], way: Way, base: Way) -> bool:
    """At the most in this."""
    if count is _n_threads:
        return replace(way, n_threads=base.n_threads) == base
    return replace(way, n_lanes=base.n_lanes) == base
