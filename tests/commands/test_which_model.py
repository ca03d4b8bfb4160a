"""Which model a command means: the words, what there is, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from automl.commands.models.which_model import (
    TableModel,
    choose_model,
    choose_models,
    choose_winner,
    find_model_trial,
    outdated_model_note,
)
from automl.config import (
    Config,
    DataConfig,
    DataKind,
    ObjectiveConfig,
    ObjectiveKind,
    StudyConfig,
)
from automl.config.which_models import REFIT, parse_which
from automl.errors import ConfigError
from automl.models.model_file import RefitFacts
from automl.record.event_log import EventLog
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory
from automl.record.study_files import StudyFiles
from automl.record.study_record import record_from_events
from automl.record.trial_record import TrialRecord
from automl.running.prepare.refit_task import ensemble_to_refit
from automl.trial import (
    EnsembleBuilt,
    Event,
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    PrunedOutcome,
    SweepStarted,
    TrialStarted,
)

if TYPE_CHECKING:
    from automl.models.predictor import Predictor


def events() -> list[Event]:
    """0 and 1 finished, 2 was pruned with the best value, 3 failed, 4 runs."""
    found: list[Event] = [SweepStarted(0.0, "s", "u", {"study.metric": "val_loss"})]
    for number, loss in enumerate((0.5, 0.3, 0.2, 0.6, 0.1)):
        found.append(TrialStarted(number, 1.0, {}, "cpu"))
        found.append(MetricsReported(number, 2.0, 0, {"val_loss": loss}))
    ends = (
        FinishedOutcome(0, 3.0, 0.5),
        FinishedOutcome(1, 3.0, 0.3),
        PrunedOutcome(2, 3.0, 0, 0.2),
        FailedOutcome(3, 3.0, "x"),
    )
    return [*found, *ends]


@pytest.fixture
def searched(tmp_path: Path) -> Config:
    """Of a study whose trials 0 and 2 have models, and which was refitted."""
    config = Config(study=StudyConfig(name="s", dir=str(tmp_path)))
    with StudyDirectory.open(config.study, must_exist=False) as directory:
        files = directory.files
        with EventLog.open(files.events) as log:
            for event in events():
                log.append(event)
    for number in (0, 2):
        files.checkpoints(number).mkdir(parents=True)
        (files.checkpoints(number) / "best.pt").touch()
    files.refit.touch()
    return config


def meant(config: Config, which: str | None = None) -> str:
    choice = choose_model(config, parse_which(which), "export")
    return str(choice.file.relative_to(Path(config.study.dir) / "s"))


BEST, NAMED = (f"checkpoints/trial-{number:05d}/best.pt" for number in (2, 0))


@pytest.mark.parametrize(
    ("which", "with_refit", "without"),
    [
        (None, "refit.pt", BEST),
        ("0", NAMED, NAMED),
        ("trial:0", NAMED, NAMED),
        ("best", BEST, BEST),
        ("knee", BEST, BEST),
        ("val_loss", BEST, BEST),
        ("metric:val_loss", BEST, BEST),
    ],
)
def test_the_refit_where_there_is_one_and_nobody_names_a_trial(
    searched: Config, which: str | None, with_refit: str, without: str
) -> None:
    assert meant(searched, which) == with_refit
    (Path(searched.study.dir) / "s" / "refit.pt").unlink()
    assert meant(searched, which) == without


def test_a_refit_that_is_asked_for_must_be_there(searched: Config) -> None:
    assert meant(searched, "refit") == "refit.pt"
    with pytest.raises(ConfigError, match=r"which=refit,0: export takes one model; evaluate comp"):
        meant(searched, "refit,0")
    (Path(searched.study.dir) / "s" / "refit.pt").unlink()
    with pytest.raises(ConfigError, match=r"which=refit: .*automl refit s"):
        meant(searched, "refit")


def test_a_trial_whose_file_is_gone_is_said(searched: Config) -> None:
    with pytest.raises(ConfigError, match=r"best\.pt: trial 1 has left no such file"):
        meant(searched, "1")


def several(config: Config, which: str | None) -> list[int | str]:
    choices = choose_models(config, parse_which(which))
    return [c.file.stem if c.trial is None else c.trial.number for c in choices]


def test_of_several_the_refit_and_then_the_best_come_first(searched: Config) -> None:
    files = StudyFiles(Path(searched.study.dir) / "s")
    assert several(searched, None) == ["refit"]
    assert several(searched, "0,2") == [2, 0]
    assert several(searched, "best,2,0") == [2, 0], "the best is 2"
    assert several(searched, "0,2,refit") == ["refit", 2, 0]
    assert several(searched, "refit") == ["refit"]
    assert several(searched, "best") == [2]
    files.ensemble.touch()
    assert several(searched, "0,ensemble,refit") == ["refit", "ensemble", 0]
    files.ensemble.unlink()
    files.refit.unlink()
    assert several(searched, None) == [2]
    with pytest.raises(ConfigError, match=r"which=refit: "):
        several(searched, "refit,0")


def test_an_ensemble_made_without_the_best_trial_is_outdated(searched: Config) -> None:
    nothing = cast("Predictor", None)  # is asked
    model = TableModel(nothing, Path("ensemble.pt"), 0, None, is_ensemble=True)
    late = "the best trial is trial-00002 by now, and the ensemble was made without it: python"
    assert outdated_model_note(searched, model).startswith(late)
    files = StudyFiles(Path(searched.study.dir) / "s")
    for looked_at, said in ([0, 1], late), ([2, 0], ""):
        speeds = dict.fromkeys(looked_at, 1.0)
        with EventLog.open(files.events) as log:
            log.append(EnsembleBuilt(9.0, 10, {0: 1.0}, {"loss": 0.5}, speeds))
        assert outdated_model_note(searched, model)[: len(late)] == said


def is_ensemble(config: Config, members: dict[int, float], **scores: float) -> Config:
    """The same with an ensemble, no better than the best trial if its loss is above 0.2."""
    files = StudyFiles(Path(config.study.dir) / "s")
    files.ensemble.touch()
    with EventLog.open(files.events) as log:
        log.append(EnsembleBuilt(9.0, 10, members, scores, dict.fromkeys((0, 1, 2), 1.0)))
    return config


TWO = {2: 0.5, 0: 0.5}


@pytest.mark.parametrize(
    ("members", "scores", "is_it"),
    [
        (TWO, {"loss": 0.1}, True),
        (TWO, {"loss": 0.2}, True),
        (TWO, {"loss": 0.21}, False),
        (TWO, {"rmse": 0.1}, False),
        ({2: 1.0}, {"loss": 0.1}, False),
    ],
)
def test_the_ensemble_is_refitted_where_it_is_the_best(
    searched: Config, members: dict[int, float], scores: dict[str, float], is_it: bool
) -> None:
    is_ensemble(searched, members, **scores)
    files = StudyFiles(Path(searched.study.dir) / "s")

    def winner(which: str | None = None) -> object:
        found = choose_winner(searched, parse_which(which), "refit")[1]
        return found.number if isinstance(found, TrialRecord) else "ensemble"

    assert winner() == ("ensemble" if is_it else 2)
    assert winner("ensemble") == "ensemble", "it is asked for"
    assert [winner("best"), winner("0")] == [2, 0]
    for which in ("refit", "0,2"):
        with pytest.raises(ConfigError, match=rf"which={which}: refit trains one trial or the"):
            winner(which)
    files.ensemble.unlink()
    assert ensemble_to_refit(read_study(files.path), files.path) is None


def test_an_ensemble_is_what_every_command_takes_before_a_trial(searched: Config) -> None:
    is_ensemble(searched, TWO, loss=0.1)
    assert meant(searched) == "refit.pt"
    (Path(searched.study.dir) / "s" / "refit.pt").unlink()
    assert meant(searched) == "ensemble.pt"
    assert meant(searched, "0") == NAMED


def test_a_refit_of_other_members_is_outdated(searched: Config) -> None:
    is_ensemble(searched, TWO, loss=0.1)
    nothing = cast("Predictor", None)  # is asked
    for members, late in (((2, 0), ""), ((2, 1), "the ensemble has other members by now than")):
        refitted = RefitFacts(2, "all", 1, "", members)
        model = TableModel(nothing, Path("refit.pt"), 2, refitted, is_ensemble=True)
        assert (model.name, model.which) == ("refit-ensemble", REFIT)
        assert outdated_model_note(searched, model)[:42] == late


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (3, "this trial has no value (failed: x)"),
        (4, "this trial has not ended (running)"),
        (9, "study s has no such trial"),
    ],
)
def test_a_trial_without_a_value_is_refused(number: int, why: str) -> None:
    study = StudyConfig(name="s")
    assert find_model_trial(record_from_events(events()), study).number == 2
    with pytest.raises(ConfigError) as caught:
        find_model_trial(record_from_events(events()), study, number)
    rest = "Those with a value, best first: 2, 1, 0; write which=best for trial 2."
    assert str(caught.value) == f"which={number}: {why}. {rest}"


def test_a_study_of_which_nothing_has_ended_says_how_to_go_on() -> None:
    with pytest.raises(ConfigError, match=r"ended with a value yet \(3 running\).* resume s"):
        find_model_trial(record_from_events(events()[:7]), StudyConfig(name="s"))
    with pytest.raises(ConfigError, match=r"value yet \(it has none\)"):
        find_model_trial(record_from_events([]), StudyConfig(name="s"))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"objective": ObjectiveConfig(ObjectiveKind.python, "a:b")}, r"has objective=python"),
        ({"data": DataConfig(DataKind.python, source="a:b")}, r"come from data\.source=a:b"),
    ],
)
def test_models_that_only_their_author_knows_are_refused(
    searched: Config, other: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=rf"export needs a .*{said}"):
        meant(replace(searched, **other))  # type: ignore[arg-type]  # whichever field
