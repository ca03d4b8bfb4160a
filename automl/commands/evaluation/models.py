"""Which of a study's models are scored, and that they can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import Config, DataKind, ObjectiveKind
from automl.data.dataset import Dataset
from automl.errors import ConfigError
from automl.record.directory import command_line
from automl.record.files import StudyFiles
from automl.record.study import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.training.family import Builder, Family
from automl.trial import CheckpointKind, TrialState

if TYPE_CHECKING:
    from automl.training.predictor import Predictor


def refuse_others(config: Config) -> None:
    """Raises ConfigError for a study whose models and rows only its author knows."""
    if config.data.kind is DataKind.python and config.objective.kind is ObjectiveKind.builtin:
        raise ConfigError(
            f"study.name={config.study.name}: evaluate needs a table, and the rows of this study "
            f"come from data.source={config.data.source}. Ask its best model yourself: "
            f"automl.open_study({config.study.name!r}).best.load().predict(rows)"
        )
    kind = config.objective.kind
    if kind is not ObjectiveKind.builtin:
        raise ConfigError(
            f"study.name={config.study.name}: evaluate needs a study of the built-in training "
            f"(objective=builtin), whose table and models are known; this one has objective="
            f"{kind.name}. What it kept of its best trial: "
            f"automl.open_study({config.study.name!r}).best.load()"
        )


def chosen(config: Config, record: StudyRecord) -> list[TrialRecord]:
    """The trials to score, the best of the study first. Raises ConfigError."""
    best, numbers = record.best(), config.evaluate.trials
    if best is None:
        counts = ", ".join(f"{n} {state.value}" for state, n in record.counts().items() if n)
        raise ConfigError(
            f"study.name={record.name}: no trial has ended with a value yet ({counts or 'none'}"
            "), so that there is no model to score. Go on with the study first: "
            f"{command_line('resume', config.study)}"
        )
    if not numbers:
        return [best]
    for number in numbers:
        _check_trial(number, record)
    return [trial for trial in record.ranking() if trial.number in numbers]


def _check_trial(number: int, record: StudyRecord) -> None:
    known = {trial.number for trial in record.ranking()}
    if number in known:
        return
    trial = record.trials.get(number)
    state = "is none of its trials" if trial is None else f"is {trial.state.value}, without a value"
    if trial is not None and trial.state in (TrialState.RUNNING, TrialState.INTERRUPTED):
        state = f"has not ended ({trial.state.value})"
    raise ConfigError(
        f"evaluate.trials: {number} {state}. Those of study {record.name} with a value, the best "
        f"first: {_listed([trial.number for trial in record.ranking()])}."
    )


def load_models(
    directory: Path, trials: Sequence[TrialRecord], config: Config
) -> dict[int, Predictor]:
    """By trial number. Raises AutoMLError for one that cannot be read, or was not kept."""
    from automl.training.predictor import load_of_table

    build, found = builder(config), {}
    for trial in trials:
        path = StudyFiles(directory).checkpoint(trial.number, CheckpointKind.BEST)
        if not path.exists():
            raise ConfigError(
                f"evaluate.trials: {trial.number} has left no {path.name} ({path}): restore it "
                "from a copy, or name another trial."
            )
        found[trial.number] = load_of_table(path, build=build)
    return found


def check_data(dataset: Dataset, models: dict[int, Predictor], config: Config) -> None:
    """Raises ConfigError where the table, or its split, is not what the models learned from: some
    of its test rows may have trained them."""
    for number, model in models.items():
        if model.data_digest:
            same = model.data_digest == dataset.digest
        else:  # written before files told it: as far as can be seen
            same = model.columns == dataset.columns
        if not same:
            where = f"data.path={config.data.path}" if config.data.path else "the data"
            raise ConfigError(
                f"study.name={config.study.name}: {where} is not what trial {number} learned from "
                "(other content, or split by other data.* settings), so that nobody knows which "
                "rows no sweep saw. Put the table of then back, and change no data.* but "
                "data.path (where it lies now) and data.test_path (rows that came later)."
            )


def builder(config: Config) -> Builder | None:
    """What builds a network of the user's own; None: the model file tells all."""
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    if config.model.users_target is None:
        return None

    from automl.training.resolve import resolve_builder

    return resolve_builder(config.model.users_target[1])


def _listed(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 20} more" if len(numbers) > 20 else ""
    return ", ".join(map(str, numbers[:20])) + more
