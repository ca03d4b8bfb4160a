"""The runner of the recipes, with recipes of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.recipes import run as runner

SWEEP = (
    "python -m automl objective=python objective.target={name}.py:train execution=inline "
    "devices.only=cpu space='{{lr: [1, 2]}}' study.n_trials=1 study.name={name}"
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "recipes").mkdir()
    return tmp_path / "recipes" / "mine.py"


def written(recipe: Path, *lines: str, body: str = "") -> Path:
    recipe.write_text('"""Mine.\n\n' + "".join(f"$ {line}\n" for line in lines) + f'"""\n{body}')
    return recipe


@pytest.mark.slow
def test_a_recipe_that_works_leaves_nothing_in_its_folder(recipe: Path, tmp_path: Path) -> None:
    body = "def train(lr):\n    return lr\n"
    made = written(recipe, SWEEP.format(name="mine"), "test -d studies", body=body)
    fault, seconds = runner.run(made, tmp_path / "copy")
    assert fault == ""
    assert seconds > 0
    assert [path.name for path in recipe.parent.iterdir()] == ["mine.py"]
    assert (tmp_path / "mlflow.db").exists()


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["true"], "no trial finished with a value, of 0"),
        (["python -c 'print(6 * 7); raise SystemExit(3)'", "true"], "exit 3\n$ python -c"),
        (["false", "sleep 1000"], "exit 1\n$ false"),
        ([], "no trial finished"),
    ],
)
def test_a_recipe_that_does_not_work_says_why(
    recipe: Path, tmp_path: Path, lines: list[str], fault: str
) -> None:
    said, _ = runner.run(written(recipe, *lines), tmp_path / "copy")
    assert said.startswith(fault)
    assert ("42" in said) == ("6 * 7" in said), "with its last lines"


def test_a_recipe_that_hangs_is_ended(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LIMIT_SECONDS", 0.5)
    said, _ = runner.run(written(recipe, "echo begun; sleep 1000"), tmp_path / "copy")
    assert said == "did not end\n$ echo begun; sleep 1000\nbegun"


def test_it_runs_by_the_environment_that_it_was_started_in(recipe: Path, tmp_path: Path) -> None:
    seen = written(recipe, "python -c 'import sys; raise SystemExit(sys.prefix)'")
    assert sys.prefix in runner.run(seen, tmp_path / "copy")[0]


def test_the_exit_code_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["not-there"]) == 2
    assert capsys.readouterr().err == "no such recipe: not-there\n"
