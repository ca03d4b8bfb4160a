"""A page on a study of Optuna's, and a study that learns from one: nothing else is left behind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command, run_command
from automl.errors import ConfigError
from automl.running.prepare.preparation import prepare_study
from tests.search.test_optuna_source import STORED


@pytest.fixture(autouse=True)
def old_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    Path("temporary").mkdir()
    shutil.copy(STORED / "optuna-3.1.1.log", "old.log")


def words_of(page: Path) -> str:
    text = re.sub(r"<(script|style).*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def test_the_page_of_an_old_study_is_all_that_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(parse_command_line(["report", "from=old.log:prices"])) == 0
    assert {path.name for path in Path().iterdir()} == {"old.log", "temporary", "report.html"}
    text = words_of(Path("report.html"))
    assert "Trials: 10 finished, 1 pruned" in text
    assert "resume" not in text
    assert "study.dir" not in text
    assert "report.html" in capsys.readouterr().out


def test_several_values_and_another_file(capsys: pytest.CaptureFixture[str]) -> None:
    line = parse_command_line(["report", "from=old.log:front", "to=page.html", "--json"])
    assert run_command(line) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["page"], answer["study"]) == ("page.html", "old.log:front")
    assert "Front" in words_of(Path("page.html"))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["from=prices"], r"from=prices: must be the address of a study of Optuna's"),
        (["from=old.log"], r"it holds 2 studies"),
        (["from=old.log:prices", "to=a.csv"], r"to=a\.csv: must end in \.html"),
    ],
)
def test_another_line_is_refused(words: list[str], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        run_command(parse_command_line(["report", *words]))


def test_a_study_learns_from_one_of_optunas() -> None:
    Path("my.py").write_text("def train(lr, depth): return lr\n")
    words = ["train=my.py:train", "space.lr=log:1e-4..1e-1", "space.depth=2..8", "name=next"]
    line = parse_command_line([*words, "study.warm_from=['old.log:prices']"])
    rules = prepare_study(compose_command(line).config).rules
    earlier = rules.read_earlier()
    assert len(earlier.trials) == 10
    assert {trial.value for trial in earlier.trials} == {None}, "they count by rank"
    assert set(earlier.points[0]) == {"lr", "depth"}
    line = parse_command_line([*words, "study.warm_from=['old.log:nix']"])
    with pytest.raises(ConfigError, match=r"^study\.warm_from=old\.log:nix: there is no study"):
        prepare_study(compose_command(line).config).rules.read_earlier()
