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
    find_model_trial,
    outdated_model_note,
)
from automl.config import (
    Config,
    DataConfig,
    DataKind,
    EvaluateConfig,
    ExportConfig,
    ObjectiveConfig,
    ObjectiveKind,
    RefitConfig,
    RefitMembers,
    StudyConfig,
    WhichModel,
)
from automl.errors import ConfigError
from automl.models.model_file import RefitFacts
from automl.record.event_log import EventLog
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory
from automl.record.study_files import StudyFiles
from automl.record.study_record import record_from_events
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

AUTO, TRIAL, REFIT = WhichModel.auto, WhichModel.trial, WhichModel.refit


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


def meant(config: Config, model: WhichModel = AUTO, trial: int | None = None) -> str:
    choice = choose_model(replace(config, export=ExportConfig(model=model, trial=trial)), "export")
    return str(choice.file.relative_to(Path(config.study.dir) / "s"))


BEST, NAMED = (f"checkpoints/trial-{number:05d}/best.pt" for number in (2, 0))


@pytest.mark.parametrize(
    ("model", "trial", "with_refit", "without"),
    [
        (AUTO, None, "refit.pt", BEST),
        (AUTO, 0, NAMED, NAMED),
        (TRIAL, None, BEST, BEST),
        (TRIAL, 0, NAMED, NAMED),
    ],
)
def test_the_refit_where_there_is_one_and_nobody_names_a_trial(
    searched: Config, model: WhichModel, trial: int | None, with_refit: str, without: str
) -> None:
    assert meant(searched, model, trial) == with_refit
    (Path(searched.study.dir) / "s" / "refit.pt").unlink()
    assert meant(searched, model, trial) == without


def test_a_refit_that_is_asked_for_must_be_there(searched: Config) -> None:
    assert meant(searched, REFIT) == "refit.pt"
    with pytest.raises(ConfigError, match=r"export\.model=refit export\.trial=0: give one of them"):
        meant(searched, REFIT, 0)
    (Path(searched.study.dir) / "s" / "refit.pt").unlink()
    with pytest.raises(ConfigError, match=r"export\.model=refit: .*automl refit study\.name=s"):
        meant(searched, REFIT)


def test_a_trial_whose_file_is_gone_is_said(searched: Config) -> None:
    with pytest.raises(ConfigError, match=r"best\.pt: trial 1 has left no such file"):
        meant(searched, trial=1)


def several(config: Config, model: WhichModel, *trials: int) -> list[int | None]:
    asked = replace(config, evaluate=EvaluateConfig(model=model, trials=[*trials]))
    return [None if one.trial is None else one.trial.number for one in choose_models(asked)]


def test_of_several_the_refit_and_then_the_best_come_first(searched: Config) -> None:
    assert several(searched, AUTO) == [None]
    assert several(searched, AUTO, 0, 2) == [2, 0]
    assert several(searched, REFIT, 0, 2) == [None, 2, 0]
    assert several(searched, REFIT) == [None]
    assert several(searched, TRIAL) == [2]
    (Path(searched.study.dir) / "s" / "refit.pt").unlink()
    assert several(searched, AUTO) == [2]
    with pytest.raises(ConfigError, match=r"evaluate\.model=refit: "):
        several(searched, REFIT, 0)


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
    ("members", "scores", "refit", "is_it"),
    [
        (TWO, {"loss": 0.1}, RefitConfig(), True),
        (TWO, {"loss": 0.2}, RefitConfig(), True),
        (TWO, {"loss": 0.21}, RefitConfig(), False),
        (TWO, {"rmse": 0.1}, RefitConfig(), False),
        ({2: 1.0}, {"loss": 0.1}, RefitConfig(), False),
        (TWO, {"loss": 0.1}, RefitConfig(trial=2), False),
        (TWO, {"loss": 0.1}, RefitConfig(members=RefitMembers.none), False),
    ],
)
def test_the_ensemble_is_refitted_where_it_is_the_best(
    searched: Config,
    members: dict[int, float],
    scores: dict[str, float],
    refit: RefitConfig,
    is_it: bool,
) -> None:
    config = replace(is_ensemble(searched, members, **scores), refit=refit)
    files = StudyFiles(Path(config.study.dir) / "s")
    record = read_study(files.path)
    assert ensemble_to_refit(record, config, files.path) == (record.ensemble if is_it else None)
    files.ensemble.unlink()
    assert ensemble_to_refit(record, config, files.path) is None


def test_an_ensemble_is_what_every_command_takes_before_a_trial(searched: Config) -> None:
    is_ensemble(searched, TWO, loss=0.1)
    assert meant(searched) == "refit.pt"
    (Path(searched.study.dir) / "s" / "refit.pt").unlink()
    assert meant(searched) == "ensemble.pt"
    assert meant(searched, trial=0) == NAMED


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
    assert find_model_trial(record_from_events(events()), study, "refit.trial").number == 2
    with pytest.raises(ConfigError) as caught:
        find_model_trial(record_from_events(events()), study, "refit.trial", number)
    rest = "Those with a value, best first: 2, 1, 0; leave refit.trial out for trial 2, the best."
    assert str(caught.value) == f"refit.trial={number}: {why}. {rest}"


def test_a_study_of_which_nothing_has_ended_says_how_to_go_on() -> None:
    with pytest.raises(ConfigError, match=r"ended with a value yet \(3 running\).* resume study"):
        find_model_trial(record_from_events(events()[:7]), StudyConfig(name="s"), "refit.trial")
    with pytest.raises(ConfigError, match=r"value yet \(it has none\)"):
        find_model_trial(record_from_events([]), StudyConfig(name="s"), "refit.trial")


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
