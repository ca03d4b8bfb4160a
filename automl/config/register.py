"""A study's model in MLflow's registry."""

from __future__ import annotations

import re
from dataclasses import dataclass

from automl.config.checks import check
from automl.config.which_model import WhichModel

_NAME = re.compile(r"[^/:'\"\\\x00-\x1f]{1,200}")


@dataclass
class RegisterConfig:
    """What `register` registers, and under which name."""

    name: str | None = None
    """The registered model; none: the study's name. Studies may share one that they all name."""
    trial: int | None = None
    """Of which trial; none: the best."""
    model: WhichModel = WhichModel.auto
    """Which model: auto is the refit where there is one and no trial is named, else the ensemble,
    else the best trial."""

    def __post_init__(self) -> None:
        check(self.trial is None or self.trial >= 0, "register.trial", self.trial, "must be ≥ 0.")
        check(
            self.name is None or bool(_NAME.fullmatch(self.name) and self.name.strip()),
            "register.name",
            self.name,
            "must be 1 to 200 characters without slashes, colons, quotes and line ends.",
        )
