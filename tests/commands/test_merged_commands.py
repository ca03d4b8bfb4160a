"""The commands that others have taken in: what is written now, and the older names."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from automl.cli import main
from automl.cli.arguments import parse_command_line
from automl.cli.command_registry import COMMANDS
from automl.cli.typed_arguments import type_arguments
from automl.errors import ConfigError
from tests.commands.test_list import make_study
from tests.report.studies import searched, write_study
from tests.terminal.test_view import VIEW


@pytest.fixture
def studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        write_study(tmp_path / "studies" / name, searched(5))
    return tmp_path / "studies"


@pytest.mark.parametrize(
    ("words", "entry", "arguments", "overrides"),
    [
        (["edit", "a", "name=b"], "rename", ("name=b",), ("study.name=a",)),
        (["edit", "a", "space.lr=1..2"], "edit", (), ("study.name=a", "space.lr=1..2")),
        (
            ["from=a", "name=b", "warm=true", "seed=3"],
            "clone",
            ("name=b", "warm=true", "start=true"),
            ("study.name=a", "study.seed=3"),
        ),
        (
            ["sweep", "from=a", "study.name=b", "start=false"],
            "clone",
            ("name=b", "start=false"),
            ("study.name=a",),
        ),
        (["export", "a", "format=registry", "as=m"], "register", ("as=m",), ("study.name=a",)),
        (["export", "a", "format=torch"], "export", ("format=torch",), ("study.name=a",)),
        (["report", "a"], "report", (), ("study.name=a",)),
        (["report", "a", "b"], "report", ("studies=['b']",), ("study.name=a",)),
    ],
)
def test_a_word_has_the_entry_that_runs_it(
    words: list[str], entry: str, arguments: tuple[str, ...], overrides: tuple[str, ...]
) -> None:
    line = parse_command_line(words)
    assert (line.command, line.arguments, line.overrides) == (entry, arguments, overrides)


def test_a_new_name_and_new_settings_are_two_edits() -> None:
    with pytest.raises(ConfigError, match=r"name=b n_trials=5: .* give two lines"):
        parse_command_line(["edit", "a", "name=b", "n_trials=5"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["warm=true"], "warm=True: needs from=NAME"),
        (["start=false"], "start=False: needs from=NAME"),
        (["report", "first", "to=t.txt"], "to=t.txt: must end in .html, .csv"),
        (["report", "first", "second", "to=t.csv"], "to=t.csv: a table is of one study"),
        (["status", "trials=some"], "trials=some: must be all"),
    ],
)
@pytest.mark.usefixtures("studies")
def test_a_word_without_its_partner_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err


def test_a_registered_name_needs_the_registry() -> None:
    with pytest.raises(ConfigError, match=r"as=m: names a registered model: add format=registry"):
        type_arguments("export", ["as=m"])


def test_an_older_name_says_what_is_written_now_but_not_to_programs(
    studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {name for name, command in COMMANDS.items() if command.written_now} == {
        *("compare", "trials", "columns", "gain", "ensemble"),
        *("register", "rename", "clone", "list"),
        "report_optuna",  # only `report from=` leads to it
    }
    assert main(["list"]) == 0
    assert capsys.readouterr().err == "automl: list is now written: automl status\n"
    assert main(["list", "--json"]) == 0
    out, err = capsys.readouterr()
    assert {study["name"] for study in json.loads(out)["studies"]} == {"first", "second"}
    assert err == ""


def test_a_report_of_several_studies_compares_them(
    studies: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "first", "second"]) == 0
    assert "studies/compare-first-and-second.html" in capsys.readouterr().out
    assert (studies / "compare-first-and-second.html").is_file()
    assert main(["report", "first", "second", "to=both.html"]) == 0
    assert "second" in Path("both.html").read_text()


def test_a_report_goes_into_the_file_that_is_named(studies: Path) -> None:
    assert main(["report", "first", "to=page.html"]) == 0
    assert Path("page.html").read_text() == (studies / "first" / "report.html").read_text()
    assert main(["report", "first", "to=t.csv"]) == 0
    with Path("t.csv").open() as file:
        assert [row["trial"] for row in csv.DictReader(file)] == ["0", "1", "2", "3", "4"]


def test_status_prints_all_trials(studies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "first", "trials=all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_status_lists_the_ten_newest_of_the_other_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    for age in range(13):
        make_study(tmp_path / "studies" / f"s{age}", replace(VIEW, ended="done"), float(age))
    assert main(["status"]) == 0
    out = capsys.readouterr().out
    names = [line.split()[0] for line in out.partition("\nstudy ")[2].splitlines()[1:11]]
    assert names == [f"s{age}" for age in range(1, 11)]
    assert out.splitlines()[-1] == "and 2 studies more: status all=true"
    assert main(["status", "s3"]) == 0
    assert "\ns4 " not in capsys.readouterr().out
    assert main(["status", "s3", "all=true"]) == 0
    assert "\ns12 " in capsys.readouterr().out
