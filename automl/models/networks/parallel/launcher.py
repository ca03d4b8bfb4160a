"""Trains a trial in several processes (ranks), one for each device, which start and end together.

To the session it is an objective like any other: the messages of rank 0 become the trial's reports.
A rank that dies ends all, and the trial is interrupted. Each process takes its own share of every
batch, and the flat gradient is summed once a step (`trainer.py`). That is one message, and a
batch that does not divide evenly is weighted exactly. torch's DistributedDataParallel sums while
the backward pass still runs, and weights all processes alike; on a CPU it is no faster
(`experiments/011-refit`). Torch is not loaded here.

The messages between a trial's process and its ranks:

| direction   | messages |
|-------------|----------|
| to a rank   | a RankTask; then, to rank 0 after each EpochEnded, RankQuestions and None (go on) |
| from rank 0 | an EpochEnded after each epoch, and a RankAnswer to each RankQuestion |
| from any    | RankRemark, RankFailed, and None at its end |
"""

from __future__ import annotations

import enum
import logging
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from automl.in_trial.reports.outcomes import RankDiedError
from automl.in_trial.trial_context import TrialContext
from automl.record.texts import exit_status_text
from automl.trial import Params, ProcessEntry

logger = logging.getLogger(__name__)

_END_SECONDS = 10.0
"""The time that a broken rank has to report its error after another rank has missed it."""


def send_pickled(pipe: Connection, message: object) -> None:
    """Send a message with the bytes of its tensors. Raises OSError.

    `Connection.send` would make torch pass tensors on as files.
    """
    pipe.send_bytes(pickle.dumps(message))


def receive_pickled(pipe: Connection) -> Any:
    """Return the next message of the other end. Raises EOFError or OSError if it is gone."""
    return pickle.loads(pipe.recv_bytes())


@dataclass(frozen=True)
class RankTask:
    """The task of a rank: the trial to train, and its place among the processes."""

    objective: ProcessEntry
    """Makes the `NetworkEstimator` that trains."""
    n_threads: int
    """Number of torch's threads in a process."""
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
    """Whether the cause is another rank that is gone, and reports its own error or has died."""


class RankLauncher:
    """A `family.TrialEstimator` without packs that trains a trial in several processes."""

    def __init__(self, objective: ProcessEntry, *, n_threads: int, n_ranks: int) -> None:
        """Take the function that makes the `NetworkEstimator` in each process."""
        self._objective, self._n_threads, self._n_ranks = objective, n_threads, n_ranks

    def __call__(self, trial: TrialContext) -> None:
        """Train a trial to its end. Raises a rank's error, RankDiedError, and those of `report`."""
        devices = trial.devices if trial.device != "cpu" else ("cpu",) * self._n_ranks
        with start_ranks(self._objective, self._n_threads, trial, devices) as ranks:
            while isinstance(message := ranks.next(), EpochEnded):
                ranks.answers.clear()
                trial.report(
                    message.epoch,
                    message.metrics,
                    checkpoint=lambda: ranks.ask(RankQuestion.CHECKPOINT),
                    best=lambda: ranks.ask(RankQuestion.BEST),
                )
                if message.is_last:
                    # The checkpoint is written when all processes have ended.
                    ranks.ask(RankQuestion.CHECKPOINT)
                ranks.tell(None)


class RankProcesses:
    """The running processes of one trial, and the pipes to them."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], pipes: Sequence[Connection]):
        self._processes, self._pipes = processes, pipes
        self.answers: dict[RankQuestion, Mapping[str, Any]] = {}
        """The answers of rank 0 since its last epoch."""

    def tell(self, message: object, number: int = 0) -> None:
        """Send a message to a rank. Raises RankDiedError."""
        try:
            send_pickled(self._pipes[number], message)
        except OSError:
            self._raise_death(number)

    def ask(self, question: RankQuestion) -> Mapping[str, Any]:
        """Return the answer of rank 0 for its newest epoch. Raises as `next` does."""
        if question not in self.answers:
            self.tell(question)
            answer = self.next()
            assert isinstance(answer, RankAnswer), f"{answer} in answer to {question}"
            self.answers[question] = answer.state
        return self.answers[question]

    def next(self) -> EpochEnded | RankAnswer | None:
        """Return the next message of rank 0, or None. Raises the error of any rank."""
        missed: BaseException | None = None
        while ready := wait(self._pipes, None if missed is None else _END_SECONDS):
            for number in [self._pipes.index(pipe) for pipe in ready]:
                message = self._receive(number)
                if isinstance(message, RankRemark):
                    logger.warning("%s", message.text)
                elif isinstance(message, RankFailed) and message.lost_others:
                    missed = message.error
                elif isinstance(message, RankFailed):
                    raise message.error
                elif number == 0:
                    from_first: EpochEnded | RankAnswer | None = message
                    return from_first
        assert missed is not None
        raise RankDiedError(f"a process of the training was lost: {missed}")

    def _receive(self, number: int) -> Any:
        try:
            return receive_pickled(self._pipes[number])
        except (EOFError, OSError):
            self._raise_death(number)

    def _raise_death(self, number: int) -> None:
        code = self._processes[number].wait()
        raise RankDiedError(
            f"process {number + 1} of {len(self._processes)} of the training ended with "
            f"{exit_status_text(code)}"
        )


@contextmanager
def start_ranks(
    objective: ProcessEntry, n_threads: int, trial: TrialContext, devices: Sequence[str]
) -> Iterator[RankProcesses]:
    """Start a process for each device, and yield them; all have ended after the `with`."""
    state = trial.restore()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="automl-ranks-"))
        processes, pipes = [], []
        for _ in devices:  # all load their imports at once, before they get their tasks
            process, pipe = _start()
            stack.callback(_end, process, pipe)
            processes.append(process)
            pipes.append(pipe)
        ranks = RankProcesses(processes, pipes)
        meeting = str(Path(folder, "meeting"))
        for rank, device in enumerate(devices):
            task = RankTask(
                objective=objective,
                n_threads=n_threads,
                params=dict(trial.params),
                seed=trial.seed,
                state=state,
                rank=rank,
                n_ranks=len(devices),
                device=device,
                meeting=meeting,
            )
            ranks.tell(task, rank)
        yield ranks


def _start() -> tuple[subprocess.Popen[bytes], Connection]:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "automl.models.networks.parallel.rank", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    return process, Connection(ours.detach())


def _end(process: subprocess.Popen[bytes], pipe: Connection) -> None:
    pipe.close()
    process.kill()  # a rank has no files to write, and may wait for another rank for ever
    process.wait()
