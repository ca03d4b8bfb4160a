"""Which models can be scored on which rows: those that have not learned from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from automl.commands.which_model import TableModel
from automl.config import Config, DataKind, WhichModel
from automl.config.refit import ALL, TRAIN
from automl.data.dataset import Dataset
from automl.data.evaluation import Evaluation
from automl.data.facts import DataFacts
from automl.errors import ConfigError
from automl.record.files import REFIT
from automl.training.refitted import Refitted
from automl.trial import RowsKind

if TYPE_CHECKING:
    from automl.training.array_predictor import ArrayPredictor


class KnownRowsError(ConfigError):
    """Raised when a refit was to be scored, and there are no rows that it has not seen."""


def check_data(dataset: Dataset, models: Sequence[TableModel], config: Config) -> None:
    """Raises ConfigError where the table, or its split, is not what the models learned from: some
    of its test rows may have trained them."""
    for model in models:
        predictor, refitted = model.predictor, model.refitted
        digest = predictor.data_digest if refitted is None else refitted.data
        # Files that were written before they told it are looked at as far as can be seen.
        same = digest == dataset.digest if digest else predictor.columns == dataset.columns
        if not same:
            where = f"data.path={config.data.path}" if config.data.path else "the data"
            raise ConfigError(
                f"study.name={config.study.name}: {where} is not what {model.name} learned from "
                "(other content, or split by other data.* settings), so that nobody knows which "
                "rows no sweep saw. Put the table of then back, and change no data.* but "
                "data.path (where it lies now) and data.test_path (rows that came later)."
            )


def check_arrays(facts: DataFacts, models: Mapping[str, ArrayPredictor], config: Config) -> None:
    """The same for the user's own rows, of the content of tensors (of a Dataset only sizes are
    known)."""
    for name, model in models.items():
        digest = model.data_digest if model.refitted is None else model.refitted.data
        if digest not in ("", facts.digest):
            raise ConfigError(
                f"study.name={config.study.name}: data.source={config.data.source} gives other "
                f"data than {name} learned from, so that nobody knows which rows no sweep "
                "saw. Have it give what it gave then: seed what it draws, its split above all."
            )


def learned_from(refitted: Refitted | None, kind: RowsKind) -> bool:
    """Whether a refit trained on rows of this kind; None: a trial, which did not."""
    if refitted is None:
        return False
    if kind is RowsKind.OUT_OF_FOLD:
        return True
    if kind is RowsKind.VALIDATION:
        return refitted.rows != TRAIN
    return kind is RowsKind.KEPT and refitted.rows == ALL


def scorable(
    models: Sequence[TableModel], evaluation: Evaluation, config: Config
) -> tuple[list[TableModel], str]:
    """Those that have not learned from the rows, and what to say of the one that has. Raises
    KnownRowsError where that one was asked for."""
    known = next((m for m in models if learned_from(m.refitted, evaluation.kind)), None)
    if known is None:
        return list(models), ""
    assert known.refitted is not None
    said = said_of_known(known.refitted, config)
    return [model for model in models if model is not known], said


def said_of_known(refitted: Refitted, config: Config) -> str:
    """What to say of a refit that has learned from the rows. Raises KnownRowsError where it was
    asked for."""
    later = "data.test_path=FILE"
    if config.data.kind is DataKind.python:
        later = f'as part "test" of {config.data.source}'
    said = (
        f"{REFIT} was trained on these rows, too (refit.rows={refitted.rows}): give rows that came "
        f"later, {later}, to score it"
    )
    if config.evaluate.model is WhichModel.refit:
        raise KnownRowsError(f"evaluate.model=refit: {said}, or refit with fewer rows.")
    return said
