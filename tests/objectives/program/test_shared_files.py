"""When a file is said to be several trials', and which files are looked at."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from automl.objectives.program.shared_files import (
    MAX_ENTRIES,
    TrialFileChanges,
    add_file_changes,
    files_changed_since,
    is_written_twice,
    output_files,
)


def seen(began: float, ended: float, path: str, changed: float, *values: str) -> TrialFileChanges:
    """By a trial for each time that one ends."""
    return TrialFileChanges(int(ended), began, ended, {path: changed}, values)


@pytest.mark.parametrize(
    ("path", "found", "twice"),
    [
        ("m.pt", [seen(0, 10, "m.pt", 9)], False),
        ("m.pt", [seen(0, 10, "m.pt", 9), seen(0, 11, "m.pt", 9)], False),
        ("m.pt", [seen(0, 10, "m.pt", 9), seen(0, 12, "m.pt", 11)], True),
        ("m.pt", [seen(0, 10, "m.pt", 9), seen(20, 30, "m.pt", 29)], True),
        ("m-1.pt", [seen(0, 10, "m-1.pt", 9), seen(0, 12, "m-1.pt", 11)], False),
        ("m-1.pt", [seen(0, 10, "m-1.pt", 9), seen(20, 30, "m-1.pt", 29)], True),
        ("m-adam.pt", [seen(0, 9, "m-adam.pt", 8), seen(0, 12, "m-adam.pt", 11, "adam")], False),
        ("other", [seen(0, 10, "m.pt", 9), seen(20, 30, "m.pt", 29)], False),
    ],
)
def test_whose_a_file_is(path: str, found: list[TrialFileChanges], twice: bool) -> None:
    """With a digit, or a param's value, it may be one trial's that ran through all changes."""
    assert is_written_twice(path, found) == twice


def test_a_trial_that_went_on_is_the_same_trial() -> None:
    first, again = (
        TrialFileChanges(3, 0, 10, {"m.pt": 9}),
        TrialFileChanges(3, 20, 30, {"m.pt": 29}),
    )
    assert not is_written_twice("m.pt", [first, again])
    assert not is_written_twice("m-1.pt", [first, again, TrialFileChanges(4, 0, 40, {"m-1.pt": 5})])


def test_what_the_sweep_prints_into_is_nobodys(tmp_path: Path) -> None:
    with (tmp_path / "out.txt").open("w") as out:
        sleeping = subprocess.Popen(["sleep", "100"], stdout=out)
    (tmp_path / "other").touch()
    try:
        ours = output_files(sleeping.pid)
        found = files_changed_since(tmp_path, 0.0, tmp_path / "studies", ours)
    finally:
        sleeping.kill()
        sleeping.wait()
    assert set(found) == {"other"}


def test_what_changed_is_found_two_levels_deep(tmp_path: Path) -> None:
    for name in (
        "old",
        "new",
        "out/new",
        "out/deep/new",
        "studies/s/new",
        ".git/new",
        "a.db",
        "a.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "link").symlink_to("new")
    os.utime(tmp_path / "old", (10.0, 10.0))
    found = files_changed_since(tmp_path, 1000.0, tmp_path / "studies" / "s" / "checkpoints")
    assert set(found) == {"new", "out/new"}
    assert found["new"] == (tmp_path / "new").stat().st_mtime


def test_of_too_many_files_nothing_is_said(tmp_path: Path) -> None:
    for n in range(MAX_ENTRIES + 1):
        (tmp_path / f"x{n}").touch()
    assert files_changed_since(tmp_path, 0.0, tmp_path / "studies") == {}


def test_what_trials_saw_is_kept_and_a_torn_line_passed_over(tmp_path: Path) -> None:
    file, first = tmp_path / "written.log", seen(1, 2, "a", 1.5, "adam")
    assert add_file_changes(file, first) == [first]
    with file.open("ab") as out:
        out.write(b"[1, 2, {\n")
    assert add_file_changes(file, seen(2, 3, "a", 2.5)) == [first, seen(2, 3, "a", 2.5)]
