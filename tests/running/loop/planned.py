"""Trials to simulate: any, and those of a kind that may go as a pack."""

from __future__ import annotations

from hypothesis import strategies as st

from automl.trial import PackKind
from tests.running.loop.simulated_machine import Plan

GB = 1000**3
GPU = {"GPU-a": 24 * GB}


def n_gb(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(lambda n: n * GB)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    request = draw(st.one_of(st.none(), n_gb(0, 30)))
    return Plan(
        request_bytes=request,
        peak_bytes=draw(n_gb(0, 26)) if draw(st.booleans()) else (request or 0),
        appears_after=draw(st.floats(0, 4)),
        seconds=draw(st.floats(0, 6)),
        ends=draw(st.sampled_from(["finished", "finished", "failed", "dies", "dies twice"])),
        kind=draw(st.sampled_from([None, PackKind("a", 2), PackKind("b", 4)])),
        hosted_after=draw(st.floats(0, 2)),
        reports_after=draw(st.floats(0, 4)),
    )


A, B = PackKind("a", 4), PackKind("b", 4)


def make_plan(
    kind: PackKind | None, seconds: float = 3.0, ends: str = "finished", n_gb: int | None = 1
) -> Plan:
    request = None if n_gb is None else n_gb * GB
    return Plan(request, request or 0, seconds=seconds, kind=kind, ends=ends)
