"""The short words of a line, and the options that keys choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.cli.arguments import make_command_line, parse_command_line
from automl.cli.option_keys import asks_by_suggest
from automl.cli.short_words import SHORT_WORDS
from automl.config import ExecutionKind, ObjectiveKind
from automl.errors import ConfigError
from automl.models.families.auto.family import AutoFamily
from automl.models.families.mlp.family import MLPFamily
from tests.cli.conftest import Compose, Refuse

TABLE = ("table=houses (1).csv", "target=price, in €")


def test_there_are_twelve() -> None:
    assert len(SHORT_WORDS) == 12


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        (["resume", "prices", "n_trials=100"], ("study.name=prices", "study.n_trials=100")),
        (["n_trials=9", "resume"], None),
        (["status", "1e5"], ("study.name='1e5'",)),
        (["status", "true"], ("study.name='true'",)),
        (["report", "a", "study.name=a"], ("study.name=a", "study.name=a")),
        (["metric=a", "direction=maximize"], ("study.metric=a", "study.direction=maximize")),
        (["seed=1", "sampler=gp", "pruner=none"], ("study.seed=1", "sampler=gp", "pruner=none")),
        (["epochs=3", "name=a"], ("training.epochs=3", "study.name=a")),
        (["++epochs=3"], ("++training.epochs=3",)),
        (["timeout=1h30min"], ("study.timeout_seconds=5400.0",)),
        (["timeout=90"], ("study.timeout_seconds=90",)),
        (["timeout=none"], ("study.timeout_seconds=null",)),
        (["study.grace_seconds=2min"], ("study.grace_seconds=120.0",)),
        (["space.wait_seconds=10min"], ("space.wait_seconds=10min",)),
        (["train=my.py:fn"], ("objective.target=my.py:fn",)),
        (["train=pack.mod:fn"], ("objective.target=pack.mod:fn",)),
        (["train=python main.py --n 5"], ("objective.command=python main.py --n 5",)),
        (["train=./run.sh"], ("objective.command=./run.sh",)),
    ],
)
def test_short_words_stand_for_long_keys(
    words: list[str], overrides: tuple[str, ...] | None
) -> None:
    if overrides is None:
        with pytest.raises(ConfigError, match="resume: settings are written key=value"):
            parse_command_line(words)
        return
    assert parse_command_line(words).overrides == overrides


def test_words_of_a_command_may_be_its_arguments() -> None:
    line = parse_command_line(["predict", "prices", "my rows.csv", "to=scores.csv"])
    assert line.overrides == ("study.name=prices",)
    assert line.arguments == ("table=my rows.csv", "to=scores.csv")
    assert parse_command_line(["restore", "a.zip"]).arguments == ("file=a.zip",)
    edit = parse_command_line(["rename", "old", "name=new"])
    assert (edit.overrides, edit.arguments) == (("study.name=old",), ("name=new",))


def test_python_has_the_same_words() -> None:
    typed = ["n_trials=5", "timeout='2h'"]
    assert make_command_line("sweep", typed).overrides == parse_command_line(typed).overrides


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sweep", "prices"), "prices: settings are written key=value, and sweep takes no word"),
        (("resume", "a", "b"), "b: settings are written key=value, and resume is written resume"),
        (("predict", "a", "b", "c"), "predict is written predict NAME TABLE"),
        (("resume", "a", "study.name=b"), "two values for study.name"),
        (("resume", "a", "name=b"), "both say the same setting; leave one out"),
        (("resume", "a/b"), "a/b: the word behind resume is the name of a study"),
        (("predict", "a", "b.csv", "table=c.csv"), "two values for table"),
        (("resume", "study.n_trials"), "the value is missing: n_trials=…"),
        (("n_trials=5", "study.n_trials=6"), "both say the same setting"),
        (("train=a:b", "train=ls"), "train=a:b train=ls: both say the same"),
        (
            ("train=main.py",),
            "train=main.py:FUNCTION, and the file as a program train='python main",
        ),
        (("timeout=fast",), "timeout=fast: a duration is"),
        (("execution.kind=ray",), "execution.kind=ray: the option says this: write execution=ray"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    words: tuple[str, ...], message: str, refused: Refuse
) -> None:
    assert message in refused(*words)


def test_the_name_of_a_study_is_no_command(folder: Path, refused: Refuse) -> None:
    (folder / "studies" / "prices").mkdir(parents=True)
    assert "automl resume prices goes on with it" in refused("prices")
    assert "there is no such command" in refused("houses")


def test_the_words_of_other_tools_are_answered_with_ours(refused: Refuse) -> None:
    assert "time_limit: there is no such key. Write timeout=60." in refused("time_limit=60")
    assert "Did you mean status NAME trials=all, or report NAME?" in refused("leaderboard", "any")


# --- options that keys choose ---------------------------------------------------------------------


def test_a_table_is_chosen_by_its_file(composed: Compose) -> None:
    config = composed(*TABLE).config
    assert (config.data.kind.value, type(config.model)) == ("csv", AutoFamily)
    assert (config.data.path, config.data.target) == ("houses (1).csv", "price, in €")
    assert config == composed("data=csv", *TABLE).config
    assert type(composed(*TABLE, "model.growth=doubling").config.model) is MLPFamily


@pytest.mark.parametrize(
    ("word", "kind"),
    [("objective.target=a:b", ObjectiveKind.python), ("train=ls -l", ObjectiveKind.command)],
)
def test_what_trains_chooses_the_objective(
    word: str, kind: ObjectiveKind, composed: Compose
) -> None:
    config = composed(word, "space.lr=0.1..1").config
    assert config.objective.kind is kind
    assert config.space == {"lr": {"low": 0.1, "high": 1}}
    assert composed(word).config.space == composed(word, "space=mlp").config.space
    changed = composed(word, "space.lr=0.1..1", "~space.width").config.space
    assert changed.keys() == composed(word).config.space.keys() - {"width"}


SOURCE = """
class Net:
    def fit(self, trial):
        return trial.suggest_int("n", 1, 3)

def by_optuna(trial):
    return trial.suggest_float("x", 0, 1)

def train(trial, x):
    return x
"""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("by_optuna", ObjectiveKind.optuna),
        ("Net.fit", ObjectiveKind.optuna),
        ("train", ObjectiveKind.python),
        ("missing", ObjectiveKind.python),
    ],
)
def test_a_function_that_suggests_is_an_objective_of_optuna(
    name: str, kind: ObjectiveKind, composed: Compose, folder: Path
) -> None:
    (folder / "my" / "nets").mkdir(parents=True)
    (folder / "my" / "nets" / "__init__.py").write_text(SOURCE)
    (folder / "my" / "nets" / "own.py").write_text(SOURCE)
    for place in ("my.nets", "my.nets.own", "my/nets/own.py"):
        config = composed(f"train={place}:{name}", "space.x=0..1").config
        assert config.objective.kind is kind
    (folder / "broken.py").write_text("def f(:")
    assert not asks_by_suggest("broken.py:f")


def test_other_keys_choose_their_option(composed: Compose) -> None:
    assert composed("ray.address=local").config.execution.kind is ExecutionKind.ray
    assert composed("data.source=a:b", "model.target=c:d").config.data.kind.value == "python"
    assert type(composed("model.families=[mlp]").config.model) is AutoFamily
    assert type(composed("sampler.sigma=0.2").config.sampler).__name__ == "CMAES"
    assert type(composed("pruner.n_warmup_steps=3").config.pruner).__name__ == "MedianPruner"
    assert type(composed("pruner.factor=2").config.pruner).__name__ == "SuccessiveHalving"
    assert composed("ray.address=auto").config.execution.kind is ExecutionKind.ray
    assert composed("data.path=null").config.data.kind.value == "disc"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ray.address=local", "execution=workers"), "is for execution=ray, and execution=workers"),
        (
            ("data=digits", "table=a.csv"),
            "is for data=csv, and data=digits is chosen: add data=csv",
        ),
        (("data=digits", "data.combine=[a / b]"), "data.combine=[a / b]: is for data=csv"),
        (("data=digits", "data.columns.a=text"), "is for"),
        ((*TABLE, "data.n_train=9"), "data.n_train=9: is for data=disc, and data=csv"),
        (("train=a:b", "objective=command", "objective.command=ls"), "is for objective=python"),
        (("train=a:b", "objective.pattern=x"), "is for objective=command"),
        (("sampler.population_size=9",), "sampler=cmaes, sampler=nsga2, sampler=nsga3 have this"),
        (("sampler.sigma=1", "sampler=tpe"), "it belongs to sampler=cmaes"),
    ],
)
def test_a_key_of_an_option_that_is_not_chosen_is_refused(
    words: tuple[str, ...], message: str, refused: Refuse
) -> None:
    assert message in refused(*words)


def test_the_options_that_a_study_stored_count(
    composed: Compose, refused: Refuse, folder: Path
) -> None:
    study = folder / "studies" / "prices"
    study.mkdir(parents=True)
    (study / "config.yaml").write_text(composed(*TABLE, "name=prices").stored_config)
    assert composed("resume", "prices", "table=b.csv").config.data.path == "b.csv"
    assert "is for execution=ray" in refused("resume", "prices", "ray.address=local")
