"""Each call on a study's files fails once, fails for ever, or is a process's last.

Nothing acknowledged is lost. One point of some of them; `make faults` tries all.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from itertools import count, product
from pathlib import Path

import pytest

from tests.end_to_end.program import Program
from tests.faults.conftest import N_POINTS, SEED, NotePromise, sample
from tests.faults.syscalls import (
    SWEEPS,
    Fault,
    FaultPoint,
    TracedSweep,
    begin,
    fault_points,
    is_available,
    spread,
    try_fault,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_available(), reason="no strace that may trace"),
]

Programs = Callable[[TracedSweep], Program]
Points = Callable[[TracedSweep, Fault], list[FaultPoint]]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Programs]:
    """Return a program in a new folder in which a sweep may begin."""
    programs: list[Program] = []
    numbers = count()

    def new_program() -> Program:
        programs.append(Program(tmp_path_factory.mktemp(f"faults-{next(numbers)}")))
        return programs[-1]

    @functools.cache
    def template(sweep: TracedSweep) -> Path:
        program = new_program()
        begin(program, sweep, empty_database)
        return program.folder

    def begin_copy(sweep: TracedSweep) -> Program:
        program = new_program()
        shutil.copytree(template(sweep), program.folder, dirs_exist_ok=True)
        return program

    yield begin_copy
    for program in programs:
        program.end_all()


@pytest.fixture(scope="module")
def points_of(begun: Programs) -> Points:
    """Return the points of a sweep for a fault; each list takes a sweep, and serves more faults."""
    found: dict[tuple[str, ...], list[FaultPoint]] = {}

    def points(sweep: TracedSweep, fault: Fault) -> list[FaultPoint]:
        words = sweep.words_with(fault)
        if words not in found:
            found[words] = fault_points(begun(sweep), sweep, fault)
        return [point for point in found[words] if point.call in fault.calls]

    return points


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize(
    ("sweep", "fault"),
    sample([*product(SWEEPS, Fault)], 5),
    ids=lambda value: value.name.lower(),
)
def test_a_fault_at_a_call_breaks_no_promise(
    begun: Programs, points_of: Points, sweep: TracedSweep, fault: Fault, note_promise: NotePromise
) -> None:
    all_points = points_of(sweep, fault)
    offset = 7 * list(Fault).index(fault) + 17 * SWEEPS.index(sweep) + 31 * SEED
    n_struck, broken = 0, {}
    for point in spread(all_points, N_POINTS, offset):
        program = begun(sweep)
        result = try_fault(program, sweep, point, fault)
        n_struck += result.struck
        if result.broken:
            broken[str(point)] = result.broken
        program.end_all()
        shutil.rmtree(program.folder, ignore_errors=True)
    note_promise(f"{fault.name.lower()}, {sweep.name}", n_struck, len(broken), len(all_points))
    assert broken == {}
