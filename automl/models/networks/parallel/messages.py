"""What a trial's process and its ranks say to each other. No torch here.

to a rank    Task, then to rank 0: Ask or None (go on) after each Epoch
from a rank  from rank 0 an Epoch after each, Given for each Ask; from any Broken, and None at
             its end
"""

from __future__ import annotations

import enum
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from automl.objectives.training_plan import SessionSetup
from automl.objectives.trial_context import TrialInterrupted
from automl.trial import Params


def send_pickled(pipe: Connection, word: object) -> None:
    """Whole: `Connection.send_pickled` would have torch pass tensors on as files. Raises
    OSError."""
    pipe.send_bytes(pickle.dumps(word))


def receive_pickled(pipe: Connection) -> Any:
    """What the other end sent. Raises EOFError or OSError where it is gone."""
    return pickle.loads(pipe.recv_bytes())


class RankDiedError(TrialInterrupted):
    """Raised where a process of a trial that trains in several has died: all of them are ended."""


@dataclass(frozen=True)
class RankTask:
    """What a rank is given."""

    setup: SessionSetup
    params: Params
    seed: int
    state: Mapping[str, Any] | None
    """To go on from."""
    rank: int
    n_ranks: int
    device: str
    meeting: str
    """Path of a file, not there yet, by which the ranks find each other."""


class RankQuestion(enum.Enum):
    """What rank 0 is asked after an epoch."""

    CHECKPOINT = enum.auto()
    """All that is needed to go on."""
    BEST = enum.auto()
    """What `best.pt` holds."""


@dataclass(frozen=True)
class EpochEnded:
    """An epoch is over."""

    epoch: int
    metrics: Mapping[str, float]
    is_last: bool


@dataclass(frozen=True)
class RankAnswer:
    """Tensors on the CPU, and plain values."""

    state: Mapping[str, Any]


@dataclass(frozen=True)
class RankRemark:
    """For people."""

    text: str


@dataclass(frozen=True)
class RankFailed:
    """A rank cannot go on, and waits to be ended."""

    error: BaseException
    lost_others: bool
    """It is because another is gone, which tells itself why or has died."""
