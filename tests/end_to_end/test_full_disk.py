"""A study on a disk of 2 MB that fills up: one message, and it goes on when there is room."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from automl.trial import MetricsReported
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.end_to_end.troubled import N_EPOCHS

WORDS = (
    "study.n_trials=2",
    "study.min_free_space=none",
    "training.checkpoint_every_seconds=0",
    "admission.max_concurrent_trials=1",
    "pruner=none",
    "devices.only=cpu",
    "objective=python",
    "objective.target=tests.end_to_end.troubled:waits_until_full",
    "space={x: 1}",
)


@pytest.fixture
def disk(folder: Path) -> Iterator[Path]:
    """The folder `studies`, on a disk of its own."""
    path = folder / "studies"
    path.mkdir()
    if (mount := shutil.which("mount")) is None:
        pytest.skip("no program named mount: no small disk can be made here")
    command = [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """To the last byte; returns the file that does."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    return path


@pytest.mark.slow
def test_a_disk_that_fills_up_is_named_and_the_study_goes_on(program: Program, disk: Path) -> None:
    records = Records(program.folder, "full")
    sweep = program.start("study.name=full", *WORDS)
    sweep.wait_until(lambda: has_reported(records), "a first report")
    sweep.wait_until((records.path / "status.json").exists, "a first view")
    filler = fill(disk)
    (program.folder / "full").touch()
    done = sweep.wait()
    assert done.code == 1
    assert done.stderr.startswith("automl: ")
    assert str(records.path) in done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "go on with: python -m automl resume full" in done.stdout

    filler.unlink()
    resumed = program.call("resume", "study.name=full")
    assert (resumed.code, resumed.stderr) == (0, "")
    records.check_exact(2, N_EPOCHS, ["train_loss", "val_loss"])


def has_reported(records: Records) -> bool:
    return any(isinstance(event, MetricsReported) for event in records.events())


def test_a_disk_that_is_full_at_the_start_is_named(disk: Path, call: Call) -> None:
    fill(disk)
    refused = call("study.name=full", *WORDS)
    assert refused.code == 1
    assert refused.stderr.startswith("automl: ")
    assert str(disk / "full") in refused.stderr
    assert "No space left on device" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (disk / "full").exists()
