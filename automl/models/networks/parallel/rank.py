"""One process of a training in several: `python -m automl.models.networks.parallel.rank FD`.

Only `launcher.py` starts it, and sends messages over the socket FD. A closed socket means that the
trial's process is gone; this process then ends at once.
"""

from __future__ import annotations

import os
import pickle
import pkgutil
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, cast

import torch
import torch.distributed as dist

from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.networks.network_estimator import NetworkEstimator
from automl.models.networks.parallel.launcher import (
    EpochEnded,
    RankAnswer,
    RankFailed,
    RankQuestion,
    RankRemark,
    RankTask,
    receive_pickled,
    send_pickled,
)
from automl.models.networks.trainer import LostRankError, NetworkTrainer, RankGroup
from automl.record.stop_signals import ignore_stop_signals
from automl.record.texts import fit_line


def main(fd: int) -> None:
    """Train until the parent closes the socket, and report errors to it."""
    ignore_stop_signals()
    parent = Connection(fd)
    messages: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(parent, messages), daemon=True).start()
    try:
        _train(messages.get(), parent, messages)
        send_pickled(parent, None)
    except BaseException as error:  # noqa: BLE001  the parent raises it: the trial ends with it
        send_pickled(parent, RankFailed(_sendable(error), isinstance(error, LostRankError)))
    threading.Event().wait()  # until the parent closes: an earlier end would look like a death


def _listen(parent: Connection, messages: SimpleQueue[Any]) -> None:
    while True:
        try:
            messages.put(receive_pickled(parent))
        except (EOFError, OSError):
            os._exit(0)


def _train(task: RankTask, parent: Connection, messages: SimpleQueue[Any]) -> None:
    torch.set_num_threads(task.n_threads)
    if on_gpu := task.device != "cpu":
        torch.cuda.set_device(task.device)
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, "lo")  # all ranks are on one machine, whatever its name
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{task.meeting}",
        rank=task.rank,
        world_size=task.n_ranks,
    )
    open_objective = pkgutil.resolve_name(task.objective.target)
    estimator = cast(NetworkEstimator, open_objective(task.objective.config))
    ranks = RankGroup(task.rank, task.n_ranks)
    with estimator.trainer(task.params, task.device, task.seed, ranks=ranks) as trainer:
        _run(task, estimator, trainer, parent, messages)


def _run(
    task: RankTask,
    estimator: NetworkEstimator,
    trainer: NetworkTrainer,
    parent: Connection,
    messages: SimpleQueue[Any],
) -> None:
    if task.rank == 0 and trainer.splits_batch_norm:
        remark = "batch norm: on CPUs each process normalises its own share of a batch"
        send_pickled(parent, RankRemark(remark))
    start = 0 if task.state is None else trainer.load_state(task.state)
    for epoch in range(start, estimator.n_epochs):
        if trainer.has_stopped:  # in all ranks at once, as they have the same metrics
            break
        metrics = trainer.run_epoch(epoch)
        if task.rank > 0:
            continue
        is_last = epoch + 1 == estimator.n_epochs or trainer.has_stopped
        send_pickled(parent, EpochEnded(epoch, metrics, is_last))
        while (question := messages.get()) is not None:
            best = question is RankQuestion.BEST
            state = estimator.best_of(trainer) if best else trainer.state(epoch)
            send_pickled(parent, RankAnswer(torch_checkpoint.snapshot(state)))


def _sendable(error: BaseException) -> BaseException:
    """Return the error if it can be pickled, else a RuntimeError with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  an exception of the user's may do anything here
        return RuntimeError(fit_line(f"{type(error).__name__}: {error}"))
    return error


if __name__ == "__main__":
    main(int(sys.argv[1]))
