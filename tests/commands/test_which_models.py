"""`which=`: the models that a text names, before anything of a study is looked at."""

from __future__ import annotations

import pytest

from automl.config.which_models import (
    BEST,
    ENSEMBLE,
    REFIT,
    WINNER,
    ModelKind,
    NamedModel,
    parse_which,
    which_trials,
)
from automl.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "models"),
    [
        (None, WINNER),
        ("best", BEST),
        ("knee", BEST),
        ("refit", REFIT),
        ("ensemble", ENSEMBLE),
        ("7", which_trials(7)),
        ("3,7", which_trials(3, 7)),
        ("3, 7", which_trials(3, 7)),
        ("[3,7]", which_trials(3, 7)),
        ("trial:7", which_trials(7)),
    ],
)
def test_a_text_names_models(text: str | None, models: object) -> None:
    assert parse_which(text) == models


@pytest.mark.parametrize("text", ["val_auc", "metric:val_auc", "metric:best", "my metric"])
def test_another_word_is_the_name_of_a_metric(text: str) -> None:
    name = text.removeprefix("metric:")
    assert parse_which(text).models == (NamedModel(ModelKind.METRIC, metric=name),)


@pytest.mark.parametrize("text", ["refit,ensemble,7", "best", "7", "val_auc", "metric:best", ""])
def test_the_text_of_models_names_them_again(text: str) -> None:
    models = parse_which(text or None)
    assert models.text == text
    assert parse_which(models.text or None) == models


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("3,3", "names a model twice: name each once"),
        ("best,knee", "names a model twice"),
        ("3,trial:3", "names a model twice"),
        ("", "write best, a trial's number"),
        ("3,", "write best, a trial's number"),
        ("-1", "write best, a trial's number"),
        ("1.5", "write best, a trial's number"),
        ("1e3", "write best, a trial's number"),
        ("trial:x", "write best, a trial's number"),
        ("metric:", "write best, a trial's number"),
        ("9" * 400, "write best, a trial's number"),
    ],
)
def test_what_names_none_is_refused_with_the_forms(text: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"^which={text}: {rule}"):
        parse_which(text)
