"""A whole number that nothing holds is refused by one clear line, whatever setting has it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from automl.cli.config_keys import OPTIONS_BY_CLASS
from automl.cli.number_bounds import MAX_NUMBER, MAX_PARAM, MAX_SEED, refuse_large_numbers
from automl.config import Config
from automl.config.checks import field_defaults
from automl.errors import ConfigError
from tests.cli.conftest import Compose, Refuse

LONG, LONGER = "9" * 400, "9" * 5000


@pytest.mark.parametrize("digits", [LONG, f"-{LONG}", LONGER, f"{2**31}", f"-{2**33}"])
@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("study.n_trials=N", "study.n_trials"),
        ("study.seed=N", "study.seed"),
        ("training.epochs=N", "training.epochs"),
        ("sampler.n_startup_trials=N", "sampler.n_startup_trials"),
        ("pruner.factor=N", "pruner.factor"),
        ("execution.pack=N", "execution.pack"),
    ],
)
def test_a_large_number_is_refused_by_its_key(
    word: str, key: str, digits: str, refused: Refuse
) -> None:
    if word == "study.seed=N" and digits == f"{2**31}":
        return  # a seed
    message = refused(word.replace("N", digits))
    assert message.startswith(key)
    assert len(message) < 300
    assert "\n" not in message


@pytest.mark.parametrize(
    "word",
    [
        "study.timeout_seconds=N",
        "study.min_free_space=NGiB",
        "admission.request=N",
        "study.constraints={a: N}",
        "space.depth={low: 1, high: N}",
        "space.depth.choices=[1,N]",
        "study.enqueue=[{lr: N}]",
        "study.n_trials=0xN",
    ],
)
@pytest.mark.parametrize("digits", [LONG, LONGER])
def test_a_large_number_of_another_kind_is_refused_too(
    word: str, digits: str, refused: Refuse
) -> None:
    message = refused(word.replace("N", digits))
    assert message.startswith(word.partition("=")[0])


def test_the_largest_numbers_are_taken(composed: Compose) -> None:
    config = composed(f"study.n_trials={MAX_NUMBER}", f"study.seed={MAX_SEED}").config
    assert (config.study.n_trials, config.study.seed) == (MAX_NUMBER, MAX_SEED)


def whole_number_keys(cls: type, prefix: str = "") -> list[str]:
    """The keys of a config class, options included, whose default is a whole number."""
    found = []
    defaults: dict[str, Any] = field_defaults(cls)
    for key in fields(cls):
        name, default = f"{prefix}{key.name}", defaults.get(key.name)
        kinds = OPTIONS_BY_CLASS.get(key.name, {"": type(default)}).values()
        for kind in kinds if prefix == "" or key.name not in OPTIONS_BY_CLASS else ():
            found += whole_number_keys(kind, f"{name}.") if is_dataclass(kind) else []
        if isinstance(default, int) and not isinstance(default, bool):
            found.append(name)
    return list(dict.fromkeys(found))


KEYS = whole_number_keys(Config)


@given(st.sampled_from(KEYS), st.integers(MAX_PARAM + 1) | st.integers(max_value=-MAX_PARAM - 1))
def test_every_whole_number_has_a_bound(key: str, number: int) -> None:
    assert len(KEYS) > 26
    config = OmegaConf.create()
    OmegaConf.update(config, key, number)
    with pytest.raises(ConfigError, match=rf"^{key}=.*: must be at (most|least) [-\d,]+\.$"):
        refuse_large_numbers(config)
    OmegaConf.update(config, key, MAX_NUMBER)
    refuse_large_numbers(config)
