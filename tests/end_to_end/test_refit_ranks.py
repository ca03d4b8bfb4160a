"""A refit in several processes: what it becomes, and what becomes of it where one of them dies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from automl.execution.process_tree import find_descendants
from automl.in_trial.checkpoints import torch_checkpoint
from automl.trial import InterruptedOutcome
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, wait_until
from tests.end_to_end.test_refit import FEW, records, study

pytestmark = pytest.mark.slow
STUDY = (
    *FEW,
    *("study.n_trials=1", "training.epochs=30", "training.checkpoint_every_seconds=0"),
    *("data.n_train=400", "training.precision=float64"),
    "space={depth: 2, width: 32, lr: 1e-4, batch_size: 64}",
)
RANKS = ("refit", "study.name=a", "parallel=ddp")


@pytest.fixture(autouse=True)
def two_cores() -> Iterator[None]:
    """Let a refit have two cores, and so train in two processes."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:2])
    yield
    os.sched_setaffinity(0, cores)


def ranks_of(pid: int) -> list[int]:
    """The processes that train together below one."""
    return [
        p for p in find_descendants(pid) if b"automl.models.networks.parallel.rank" in command_of(p)
    ]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def losses(folder: Path) -> list[float]:
    return [metrics["train_loss"] for _, metrics in sorted(records(folder).losses().items())]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state = torch_checkpoint.load(study(folder) / "refit.pt")["state"]
    found: dict[str, torch.Tensor] = state["weights"]
    return found


def forget(folder: Path) -> None:
    shutil.rmtree(study(folder) / "refits")
    (study(folder) / "refit.pt").unlink()


def test_two_processes_train_what_one_does_stopped_and_killed_on_the_way(
    program: Program, call: Call
) -> None:
    """All of it in one story: each start of two processes loads torch twice."""
    folder = program.folder
    assert call(*STUDY).code == 0
    assert call("refit", "study.name=a").code == 0
    alone = losses(folder)
    forget(folder)

    running = program.start(*RANKS)
    running.wait_until(lambda: len(ranks_of(running.process.pid)) == 2, "two processes")
    ranks = ranks_of(running.process.pid)
    running.wait_until(lambda: (study(folder) / "refits").exists(), "a refit")
    running.wait_until(lambda: records(folder).n_lines() >= 10, "10 events")
    running.signal(signal.SIGINT)
    done = running.wait()
    assert done.code == 130
    assert "go on with: python -m automl refit a" in done.stdout
    assert not any(map(command_of, ranks))
    assert not (study(folder) / "refit.pt").exists()

    running, n_lines = program.start(*RANKS), records(folder).n_lines()
    running.wait_until(lambda: records(folder).n_lines() >= n_lines + 10, "10 more events")
    first, second = ranks_of(running.process.pid)
    os.kill(second, signal.SIGKILL)
    done = running.wait()
    assert done.code == 0, done.stderr
    assert "2 processes on the CPU" in done.stdout
    _, died = [e for e in records(folder).events() if isinstance(e, InterruptedOutcome)]
    assert died.cause == "process 2 of 2 of the training ended with SIGKILL"
    wait_until(lambda: not command_of(first), "the other process is ended, too")
    np.testing.assert_allclose(losses(folder), alone, rtol=0, atol=1e-9)
    assert set(records(folder).losses()) == {(0, step) for step in range(len(alone))}
    killed = weights(folder)
    forget(folder)

    assert call(*RANKS).code == 0
    np.testing.assert_allclose(losses(folder), alone, rtol=0, atol=1e-9)
    for name, weight in weights(folder).items():
        assert torch.equal(weight, killed[name]), name
