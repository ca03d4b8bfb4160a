"""The messages between a trial's process and its ranks. Torch is not loaded here.

| direction   | messages |
|-------------|----------|
| to a rank   | a RankTask; then, to rank 0 after each EpochEnded, RankQuestions and None (go on) |
| from rank 0 | an EpochEnded after each epoch, and a RankAnswer to each RankQuestion |
| from any    | RankRemark, RankFailed, and None at its end |
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


def send_pickled(pipe: Connection, message: object) -> None:
    """Send a message with the bytes of its tensors. Raises OSError.

    `Connection.send` would make torch pass tensors on as files.
    """
    pipe.send_bytes(pickle.dumps(message))


def receive_pickled(pipe: Connection) -> Any:
    """Return the next message of the other end. Raises EOFError or OSError if it is gone."""
    return pickle.loads(pipe.recv_bytes())


class RankDiedError(TrialInterrupted):
    """Raised when one process of a trial that trains in several has died; all are then ended."""


@dataclass(frozen=True)
class RankTask:
    """The task of a rank: the trial to train, and its place among the processes."""

    setup: SessionSetup
    params: Params
    seed: int
    state: Mapping[str, Any] | None
    """The checkpoint to go on from; None starts anew."""
    rank: int
    n_ranks: int
    device: str
    meeting: str
    """The path of a file by which the ranks find each other; it does not exist yet."""


class RankQuestion(enum.Enum):
    """A question to rank 0 after an epoch."""

    CHECKPOINT = enum.auto()
    """Asks for the state from which the trial can go on."""
    BEST = enum.auto()
    """Asks for the content of `best.pt`."""


@dataclass(frozen=True)
class EpochEnded:
    """The message that an epoch has ended, with its metrics."""

    epoch: int
    metrics: Mapping[str, float]
    is_last: bool


@dataclass(frozen=True)
class RankAnswer:
    """The answer to a `RankQuestion`: tensors on the CPU, and plain values."""

    state: Mapping[str, Any]


@dataclass(frozen=True)
class RankRemark:
    """A remark of a rank for the log of the sweep."""

    text: str


@dataclass(frozen=True)
class RankFailed:
    """The message that a rank cannot go on, and waits to be ended."""

    error: BaseException
    lost_others: bool
    """Whether the cause is another rank that is gone. That rank reports its own error, or has
    died."""
