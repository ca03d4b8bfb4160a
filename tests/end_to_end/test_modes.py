"""Who may read a study is the umask's word: a colleague, unless it says otherwise."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.end_to_end.program import Program, objective_words

WORDS = (
    "study.name=shared",
    "study.n_trials=2",
    "devices.only=cpu",
    "execution=workers",
    *objective_words("speaks"),
)
NAMES = {
    *("config.yaml", "journal.log", "events.log", "place.json", "status.json", "lock"),
    *("events.delivered", "delivery.log", "sweep.log", "report.html"),
    *("trial-00000.log", "trial-00001.log", "last.pt", "best.pt"),
}


@pytest.mark.parametrize(("mask", "expected"), [(0o022, 0o644), (0o077, 0o600)])
def test_every_file_of_a_study(mask: int, expected: int, program: Program) -> None:
    before = os.umask(mask)
    try:
        done = program.start(*WORDS).wait()
    finally:
        os.umask(before)
    assert (done.code, done.stderr) == (0, "")
    found = [path for path in (program.folder / "studies").rglob("*") if path.is_file()]
    assert {path.name for path in found} == NAMES
    assert {path: mode(path) for path in found} == dict.fromkeys(found, expected)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
