"""The contract of samplers: one class per option, in a file named for it.

The fields of the class are the option's arguments (`sampler.n_startup_trials=5`), so it is Hydra's
schema as well; hence plain dataclasses, and no import of Optuna before a study is opened. To add a
sampler is to add a file here and one in `conf/sampler/`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from automl.config import SamplerConfig
from automl.search.search_space import SearchSpace, SpaceParam
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    import optuna

ChooseValue: TypeAlias = Callable[[SpaceParam], ParamValue]
"""Gives the value of a param that is searched and there in the trial, in its domain's type."""
OpenStudy: TypeAlias = "Callable[[optuna.samplers.BaseSampler], optuna.Study]"
"""Opens the study as it stands, for a sampler to look at; what that notes down is dropped."""


@dataclass(frozen=True)
class SamplerInputs:
    """What a sampler is opened for."""

    space: SearchSpace
    study_seed: int
    enqueued: Sequence[Params]
    """Whole params that are tried before the first of the sampler's own."""
    open_study: OpenStudy
    choice: str | None = None
    """The param that chooses what kind a trial is of, on which others hang; None: all are alike."""


class OpenSampler(Protocol):
    """An open sampler. What it proposes follows from the number and the trials that have ended."""

    def __call__(self, number: int) -> ChooseValue | None:
        """How the params of trial `number` are chosen; None: there are no more."""


@dataclass
class Sampler(SamplerConfig, ABC):
    """Proposes params."""

    extends: ClassVar[bool] = True
    """Whether the space may grow, as params are found that an objective asks for."""

    @abstractmethod
    def n_may_pend(self, n_ended: int) -> int | None:
        """How many trials may be asked for and not ended without harm; None: any number."""

    @abstractmethod
    def open(self, search: SamplerInputs) -> OpenSampler:
        """Make it ready for a study. Raises ConfigError for a space that it cannot take."""

    @abstractmethod
    def one(self, search: SamplerInputs) -> OpenSampler:
        """Make it ready for a space of one param, which an objective asks for while it runs. It has
        a value for each trial."""


def sampler_seed(study_seed: int, name: int | str) -> int:
    """32 bits for NumPy that differ from study seed to study seed, and by what they are for: a
    trial's number, or a param's name."""
    return int.from_bytes(hashlib.sha256(f"{study_seed}:{name}".encode()).digest()[:4], "big")
