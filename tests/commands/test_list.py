"""`list`: a row for each folder, whatever is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from automl.commands.command_call import CommandCall
from automl.commands.list import age_text, hours_text, run
from automl.config import UNLIMITED_N_TRIALS
from automl.errors import ConfigError
from automl.record.study_directory import StudyDirectory
from automl.terminal.view import BestRow, SweepView, write_view
from tests.commands.conftest import config
from tests.end_to_end.test_rights import without_roots_rights
from tests.terminal.test_view import VIEW


def make_study(path: Path, view: SweepView | None, age_seconds: float = 0.0) -> Path:
    """A study that was at work so long ago."""
    path.mkdir()
    at_seconds = time.time() - age_seconds
    files = [path / "config.yaml", path / "lock"]
    for file in files:
        file.touch()
    if view is not None:
        files.append(path / "status.json")
        write_view(path / "status.json", replace(view, time=at_seconds))
    for file in files:
        os.utime(file, (at_seconds, at_seconds))
    return path


def rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The words of each row below the head."""
    assert run(CommandCall(config(folder))) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["study", "state", "trials", "failed", "best", "device-h", "age"]
    return [line.split() for line in lines]


def test_a_study_is_told_in_a_row_the_newest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_study(tmp_path / "killed", VIEW, 3 * 86_400.5)
    over = replace(VIEW, ended="done", best=None, device_seconds=5_400.0)
    make_study(tmp_path / "over", over, 7_300.0)
    make_study(tmp_path / "begun", None, 9_000.0)
    assert rows(tmp_path, capsys) == [
        ["over", "done", "8/20", "1", "1.5", "2", "h"],
        ["begun", "not", "begun"],
        ["killed", "interrupted", "8/20", "1", "val_loss", "0.033", "3", "d"],
    ]


def test_where_only_time_ends_a_study_its_total_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"finished": 5}
    make_study(
        tmp_path / "timed", replace(VIEW, n_trials=UNLIMITED_N_TRIALS, counts=counts, best=None)
    )
    assert rows(tmp_path, capsys)[0][:4] == ["timed", "interrupted", "5", "0"]


def test_who_holds_the_lock_is_at_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_study(tmp_path / "again", replace(VIEW, ended="interrupted"))
    with StudyDirectory.open(config(tmp_path, "again").study, must_exist=True):
        assert rows(tmp_path, capsys)[0][:3] == ["again", "running", "8/20"]
    assert rows(tmp_path, capsys)[0][:3] == ["again", "interrupted", "8/20"]


def test_on_a_narrow_terminal_the_metrics_name_is_cut_and_its_value_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the output for a terminal
    best = BestRow(3, 0.98765, {})
    view = replace(VIEW, metric="val_balanced_accuracy", best=best, device_seconds=44_000.0)
    make_study(tmp_path / "wise-gecko-of-gold", replace(view, ended="done"))
    assert run(CommandCall(config(tmp_path))) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80 + len("\x1b[1m\x1b[0m")
    assert "val_balanced_… 0.98765        12 " in lines[1]


def test_the_best_value_has_its_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = replace(VIEW, best=BestRow(3, 0.5, {}, standard_error=0.0123))
    make_study(tmp_path / "sure", view)
    assert run(CommandCall(config(tmp_path))) == 0
    assert " 0.5 ± 0.012 " in capsys.readouterr().out


def test_what_tells_nothing_is_a_row_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (make_study(tmp_path / "a", VIEW, 1.0) / "status.json").write_text('{"study": "a", "ti')
    (make_study(tmp_path / "b", None, 2.0) / "status.json").mkdir()
    os.mkfifo(make_study(tmp_path / "c", None, 3.0) / "status.json")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / ".hidden").mkdir()
    found = sorted(rows(tmp_path, capsys))
    assert found == [["a", "torn"], ["b", "unreadable"], ["c", "torn"], ["notes", "foreign"]]


def test_what_a_stranger_wrote_is_one_line_and_no_order_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = "[/b]\x1b[2J\n" + "x" * 1_000
    make_study(tmp_path / "a\x1b[2J\nb", replace(VIEW, metric=odd, ended=odd))
    assert run(CommandCall(config(tmp_path))) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("a�[2J b  [/b]�[2J")
    assert len(line) < 150


def test_no_study_is_said_as_status_says_it(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="holds no study yet; start one: python -m automl"):
            run(CommandCall(config(folder)))


def test_a_file_is_no_folder_of_studies(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be read"):
        run(CommandCall(config(tmp_path / "file")))


def test_what_may_not_be_looked_into_says_so_and_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    for age, name in enumerate("abc"):
        make_study(tmp_path / "studies" / name, replace(VIEW, ended="done"), age)
    (tmp_path / "studies" / "a" / "lock").chmod(0)
    (tmp_path / "studies" / "b").chmod(0)
    done = subprocess.run(
        [*without_roots_rights(), sys.executable, "-m", "automl", "list"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "automl: list is now written: automl status\n")
    lines = [line.split()[:2] for line in done.stdout.splitlines()[1:]]
    assert lines == [["a", "done"], ["c", "done"], ["b", "unreadable"]]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (7_199, "1 h"), (86_400, "1 d"), (1e9, "11574 d")],
)
def test_an_age_is_told_in_its_largest_unit(seconds: float, expected: str) -> None:
    assert age_text(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(None, ""), (0, "0"), (2, "<0.001"), (40, "0.011"), (9_000, "2.5"), (4e6, "1,111")],
)
def test_device_time_is_told_in_hours(seconds: float | None, expected: str) -> None:
    assert hours_text(seconds) == expected


def test_a_thousand_studies_are_told_within_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1_000):
        make_study(tmp_path / f"study-{number}", VIEW, number)
    began_seconds = time.process_time()
    assert len(rows(tmp_path, capsys)) == 1_000
    assert time.process_time() - began_seconds < 2.0  # measured: 0.2 s
