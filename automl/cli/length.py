"""How long a training is where nobody says it: what stands at `training.epochs` in our schemas.

It is a reference that looks at the model beside it, so that what a config file or an application
says, be it the default itself, is told from what nobody said, and a model that is chosen later
brings its own length.
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from automl.cli.default_model import DefaultModel, model_of
from automl.config import TrainingConfig
from automl.training.family import Family, families

KEY, REFERENCE = "training.epochs", "${automl.own_length:}"


def register_length(root: DictConfig) -> None:
    """Let the schema at `root` refer to it; for this process."""
    OmegaConf.register_new_resolver("automl.own_length", _own_length, replace=True)
    OmegaConf.update(root, KEY, REFERENCE)


def is_open(config: DictConfig) -> bool:
    """Whether nobody said how long; `config` is composed from ours."""
    plain: Any = OmegaConf.to_container(config, resolve=False)
    return bool(plain["training"]["epochs"] == REFERENCE)


def said_length(training: TrainingConfig) -> str:
    """As an override."""
    return f"{KEY}={'null' if training.epochs is None else training.epochs}"


def _own_length(*, _parent_: DictConfig) -> int | None:
    """`_parent_` is the section `training` of a config of ours."""
    config = _parent_._get_parent()
    if not isinstance(config, DictConfig) or "model" not in config:
        return TrainingConfig.epochs  # the section alone
    family = OmegaConf.get_type(config, "model")
    if family is DefaultModel:
        family = families()[model_of(config.data.kind.name, config.objective.kind.name)]
    of_its_own = isinstance(family, type) and issubclass(family, Family) and family.says_length
    return None if of_its_own else TrainingConfig.epochs
