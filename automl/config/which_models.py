"""Reads `which=`: the models of a study that a command means, in one grammar for all commands.

Nothing of a study is looked at here. Whether a trial, a file or a metric of that name exists is
known where the command chooses (`commands/models/which_model.py`).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from automl.config.checks import check_setting

WHICH_FORMS_TEXT = (
    "write best, a trial's number (7, or 3,7), refit, ensemble, knee, or a metric's name "
    "(metric:NAME)"
)
_WORDS = ("best", "knee", "refit", "ensemble")
_NUMBER = re.compile(r"(trial:)?(\d{1,9})")


class ModelKind(enum.Enum):
    """The kind of a model that `which=` names."""

    BEST = "best"
    """The model of the study's best trial."""
    TRIAL = "trial"
    """The model of a trial that is named by its number."""
    METRIC = "metric"
    """The model of the trial of the front that is the best by a metric."""
    REFIT = "refit"
    """`refit.pt`: the winner trained again."""
    ENSEMBLE = "ensemble"
    """`ensemble.pt`: the weighted mean of trials' models."""


@dataclass(frozen=True)
class NamedModel:
    """One model that `which=` names."""

    kind: ModelKind
    number: int | None = None
    """Number of the trial; None unless the kind is TRIAL."""
    metric: str | None = None
    """Name of the metric; None unless the kind is METRIC."""

    @property
    def word(self) -> str:
        """The word of `which=` that names this model."""
        if self.number is not None:
            return str(self.number)
        if self.metric is None:
            return self.kind.value
        return f"metric:{self.metric}" if self.metric in _WORDS else self.metric


@dataclass(frozen=True)
class WhichModels:
    """The models that `which=` names, in its order; empty: it is not given."""

    models: tuple[NamedModel, ...] = ()

    @property
    def text(self) -> str:
        """The text of `which=`; empty where it is not given."""
        return ",".join(model.word for model in self.models)


WINNER = WhichModels()
"""What a command means without `which=`."""
REFIT, ENSEMBLE, BEST = (
    WhichModels((NamedModel(kind),))
    for kind in (ModelKind.REFIT, ModelKind.ENSEMBLE, ModelKind.BEST)
)


def which_trials(*numbers: int) -> WhichModels:
    """Return the trials of these numbers."""
    return WhichModels(tuple(NamedModel(ModelKind.TRIAL, number) for number in numbers))


def parse_which(text: str | None) -> WhichModels:
    """Return the models that a text names: `best`, `3,7`, `refit,ensemble`, `val_auc`. Raises
    ConfigError for a text of another form, and for a model that is named twice."""
    if text is None:
        return WINNER
    models = tuple(_parse_word(word.strip(), text) for word in text.strip("[]").split(","))
    is_once = len(set(models)) == len(models)
    check_setting(is_once, "which", text, "names a model twice: name each once.")
    return WhichModels(models)


def _parse_word(word: str, text: str) -> NamedModel:
    if match := _NUMBER.fullmatch(word):
        return NamedModel(ModelKind.TRIAL, int(match[2]))
    if word in ("best", "knee"):  # of several metrics, the best trial is the knee
        return NamedModel(ModelKind.BEST)
    if word in ("refit", "ensemble"):
        return NamedModel(ModelKind(word))
    name = word.removeprefix("metric:")
    is_name = bool(name) and name[0] not in "+-.0123456789" and ":" not in name
    check_setting(is_name, "which", text, f"{WHICH_FORMS_TEXT}.")
    return NamedModel(ModelKind.METRIC, metric=name)
