"""Each write of a sweep fails once, fails for ever, or is its last: nothing acknowledged is lost.

A few points each; `make faults` tries all of them, and prints how many broke a promise.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.syscalls import (
    Fault,
    WritePoint,
    is_available,
    spread,
    sweep_words,
    violations,
    write_points,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_available(), reason="no strace that may trace"),
]

N_POINTS = int(os.environ.get("FAULT_POINTS", "2"))
"""How many points each fault strikes at, at most."""


@pytest.fixture(scope="module")
def points_of(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path
) -> Callable[[tuple[str, ...]], list[WritePoint]]:
    """Return the write points of a sweep by its words, each listed once."""

    @functools.cache
    def points(words: tuple[str, ...]) -> list[WritePoint]:
        folder = tmp_path_factory.mktemp("points")
        shutil.copyfile(empty_database, folder / "mlflow.db")
        return write_points(folder, words)

    return points


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_a_fault_at_a_write_breaks_no_promise(
    points_of: Callable[[tuple[str, ...]], list[WritePoint]],
    fault: Fault,
    tmp_path: Path,
    empty_database: Path,
    record_property: Callable[[str, object], None],
) -> None:
    tried = spread(points_of(sweep_words(fault)), N_POINTS, 7 * list(Fault).index(fault))
    broken: dict[str, list[str]] = {}
    for number, point in enumerate(tried):
        folder = tmp_path / str(number)
        folder.mkdir()
        shutil.copyfile(empty_database, folder / "mlflow.db")
        broken[str(point)] = list(violations(folder, point, fault))
        shutil.rmtree(folder)
    broken = {point: found for point, found in broken.items() if found}
    record_property("faults", [fault.name.lower(), len(tried), len(broken)])
    assert tried
    assert broken == {}
