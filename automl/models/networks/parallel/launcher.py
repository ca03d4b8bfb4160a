"""Trains a trial in several processes, one for each device: started, followed, ended together.

To the session it is an objective like any other: what rank 0 tells becomes the trial's reports. A
rank that dies ends all, and the trial is interrupted. Each process takes its own share of every
batch, and the flat gradient is summed once a step (`process_group.py`): one message, and rows that
do not
divide are weighted exactly. torch's DistributedDataParallel sums while the backward pass still
runs, and weights all processes alike; on a CPU it is no faster (`experiments/011-refit`).
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from automl.models.networks.parallel.messages import (
    EpochEnded,
    RankAnswer,
    RankDiedError,
    RankFailed,
    RankQuestion,
    RankRemark,
    RankTask,
    receive_pickled,
    send_pickled,
)
from automl.objectives.training_plan import SessionSetup
from automl.objectives.trial_context import TrialContext
from automl.record.texts import how_it_ended

logger = logging.getLogger(__name__)

_END_SECONDS = 10.0
"""How long the one that broke may take to say so, when another was the first to miss it."""


class RankLauncher:
    """See `family.TrialEstimator`, but for packs."""

    def __init__(self, setup: SessionSetup, n_ranks: int) -> None:
        self._setup, self._n_ranks = setup, n_ranks

    def __call__(self, trial: TrialContext) -> None:
        """Raises what a rank raised, RankDiedError where one died, and what `report` raises."""
        devices = trial.devices if trial.device != "cpu" else ("cpu",) * self._n_ranks
        with started(self._setup, trial, devices) as ranks:
            while isinstance(told := ranks.next(), EpochEnded):
                ranks.kept.clear()
                trial.report(
                    told.epoch,
                    told.metrics,
                    checkpoint=lambda: ranks.ask(RankQuestion.CHECKPOINT),
                    best=lambda: ranks.ask(RankQuestion.BEST),
                )
                if told.is_last:
                    ranks.ask(
                        RankQuestion.CHECKPOINT
                    )  # it is written when all processes have ended
                ranks.tell(None)


class RankProcesses:
    """The processes of one trial."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], pipes: Sequence[Connection]):
        self._processes, self._pipes = processes, pipes
        self.kept: dict[RankQuestion, Mapping[str, Any]] = {}
        """What rank 0 has given since its last epoch."""

    def tell(self, word: object, number: int = 0) -> None:
        """Say something to a rank. Raises RankDiedError."""
        try:
            send_pickled(self._pipes[number], word)
        except OSError:
            self._raise_death(number)

    def ask(self, what: RankQuestion) -> Mapping[str, Any]:
        """What rank 0 has of its newest epoch. Raises as `next` does."""
        if what not in self.kept:
            self.tell(what)
            given = self.next()
            assert isinstance(given, RankAnswer), f"{given} in answer to {what}"
            self.kept[what] = given.state
        return self.kept[what]

    def next(self) -> EpochEnded | RankAnswer | None:
        """What rank 0 says next; None: it is done. Raises what any rank raised, and RankDiedError
        for one that died."""
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
                    told: EpochEnded | RankAnswer | None = message
                    return told
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
            f"{how_it_ended(code)}"
        )


@contextmanager
def started(
    setup: SessionSetup, trial: TrialContext, devices: Sequence[str]
) -> Iterator[RankProcesses]:
    """A process for each device, that trains; all have ended when it is left."""
    state = trial.restore()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="automl-ranks-"))
        processes, pipes = [], []
        for _ in devices:  # all load at once, and are then given their tasks
            process, pipe = _start()
            stack.callback(_end, process, pipe)
            processes.append(process)
            pipes.append(pipe)
        ranks = RankProcesses(processes, pipes)
        params, meeting = dict(trial.params), str(Path(folder, "meeting"))
        for rank, device in enumerate(devices):
            task = RankTask(setup, params, trial.seed, state, rank, len(devices), device, meeting)
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
    process.kill()  # it has nothing to write; one may wait for another for ever
    process.wait()
