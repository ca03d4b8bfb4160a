"""Checkpoints that are kept where every machine finds them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError, StorageError
from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.executor import InlineExecutor, TrialFeed
from automl.trial import (
    CheckpointWritten,
    FinishedOutcome,
    ProcessEntry,
    TrialEvent,
    TrialSpec,
    Verdict,
)
from tests.places import ON_HOST

WRITING = ProcessEntry("tests.execution.cluster.sessions:open_writing")


@pytest.fixture
def stored(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(f"file://{tmp_path}/bucket/sweeps", "1234")


def spec_of(machine: Path, attempt: int, n_starts: int = 0) -> TrialSpec:
    folder = str(machine / "7")
    return TrialSpec(7, {"act": "write"}, folder, 0, attempt=attempt, n_starts=n_starts)


def write(spec: TrialSpec, name: str, text: str) -> Path:
    path = Path(spec.checkpoint_dir) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_trial_goes_on_elsewhere_from_its_last_attempt(
    stored: CheckpointStore, tmp_path: Path
) -> None:
    first, second, third = (spec_of(tmp_path / name, n) for n, name in enumerate("abc", start=1))
    stored.keep(first, write(first, "last.pt", "epoch 3"))
    stored.keep(first, write(first, "best.pt", "epoch 2"))
    stored.keep(first, write(first, "last.pt", "epoch 4"))
    stored.bring(second)
    assert (tmp_path / "b" / "7" / "last.pt").read_text() == "epoch 4"
    stored.keep(second, write(second, "last.pt", "epoch 9"))
    stored.keep(first, write(first, "last.pt", "epoch 5 of one that was cut off"))
    stored.bring(third)
    brought = {path.name: path.read_text() for path in (tmp_path / "c" / "7").iterdir()}
    assert brought == {"last.pt": "epoch 9", "best.pt": "epoch 2"}


def test_starts_by_one_sweep_are_attempts_too(stored: CheckpointStore, tmp_path: Path) -> None:
    for n in (2, 10, 9):
        one = spec_of(tmp_path / "a", 0, n)
        stored.keep(one, write(one, "last.pt", f"start {n}"))
    stored.bring(spec_of(tmp_path / "b", 0, 11))
    assert (tmp_path / "b" / "7" / "last.pt").read_text() == "start 10"


FAST, SLOW = 4e9, 1e9
"""What a clock may say that is decades before or behind."""


@pytest.mark.parametrize("clock", [FAST, SLOW])
def test_who_takes_a_trial_back_goes_on_from_what_others_wrote_of_it(
    stored: CheckpointStore, tmp_path: Path, clock: float
) -> None:
    """Whatever the clock of the machine says that began it."""
    first, second = spec_of(tmp_path / "a", 1), spec_of(tmp_path / "b", 2)
    mine = write(first, "last.pt", "epoch 3")
    stored.keep(first, mine)
    stored.bring(second)
    stored.keep(second, write(second, "last.pt", "epoch 9"))
    os.utime(mine, (clock, clock))
    stored.bring(spec_of(tmp_path / "a", 3))
    assert mine.read_text() == "epoch 9"


@pytest.mark.parametrize("clock", [FAST, SLOW])
def test_what_a_folder_has_that_is_newer_stays(
    stored: CheckpointStore, tmp_path: Path, clock: float
) -> None:
    """What was written after the last that was kept: its machine died between the two."""
    one = spec_of(tmp_path / "a", 0, 0)
    mine = write(one, "last.pt", "epoch 3")
    stored.keep(one, mine)
    mine.write_text("epoch 5")
    os.utime(mine, (clock, clock))
    stored.bring(spec_of(tmp_path / "a", 0, 1))
    assert mine.read_text() == "epoch 5"


@pytest.mark.parametrize("clock", [FAST, SLOW])
def test_what_was_written_after_it_was_brought_stays(
    stored: CheckpointStore, tmp_path: Path, clock: float
) -> None:
    """Though nothing of this attempt was kept."""
    first, second = spec_of(tmp_path / "a", 1), spec_of(tmp_path / "b", 2)
    stored.keep(first, write(first, "last.pt", "epoch 3"))
    stored.bring(second)
    mine = write(second, "last.pt", "epoch 5")
    os.utime(mine, (clock, clock))
    stored.bring(spec_of(tmp_path / "b", 3))
    assert mine.read_text() == "epoch 5"


def test_what_was_never_kept_counts_less_than_what_was(
    stored: CheckpointStore, tmp_path: Path
) -> None:
    first = spec_of(tmp_path / "a", 1)
    stored.keep(first, write(first, "last.pt", "epoch 3"))
    mine = write(spec_of(tmp_path / "b", 2), "last.pt", "epoch 1")
    stored.bring(spec_of(tmp_path / "b", 3))
    assert mine.read_text() == "epoch 3"


def test_one_who_was_cut_off_makes_nothing_of_a_common_folder_older(
    stored: CheckpointStore, tmp_path: Path
) -> None:
    first, second = (spec_of(tmp_path / "common", n) for n in (1, 2))
    stored.keep(first, write(first, "last.pt", "epoch 3"))
    stored.keep(second, mine := write(second, "last.pt", "epoch 4"))
    stored.keep(first, write(first, "best.pt", "epoch 2"))
    mine.write_text("epoch 5")
    stored.bring(spec_of(tmp_path / "common", 3))
    assert mine.read_text() == "epoch 5"


def test_what_was_deleted_from_a_folder_comes_again(
    stored: CheckpointStore, tmp_path: Path
) -> None:
    one = spec_of(tmp_path / "a", 1)
    stored.keep(one, mine := write(one, "last.pt", "epoch 3"))
    mine.unlink()
    stored.bring(spec_of(tmp_path / "a", 2))
    assert mine.read_text() == "epoch 3"


@pytest.mark.parametrize("name", ["zzz/last.pt", "last.pt", "00009-00001x/last.pt"])
def test_what_no_attempt_has_put_there_is_not_taken(
    stored: CheckpointStore, tmp_path: Path, name: str
) -> None:
    one = spec_of(tmp_path / "a", 1)
    stored.keep(one, write(one, "last.pt", "epoch 3"))
    stray = tmp_path / "bucket/sweeps/1234/trial-00007" / name
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("a stranger's")
    stored.bring(spec_of(tmp_path / "b", 2))
    assert (tmp_path / "b" / "7" / "last.pt").read_text() == "epoch 3"


def test_what_was_not_put_whole_is_not_taken(stored: CheckpointStore, tmp_path: Path) -> None:
    one = spec_of(tmp_path / "a", 1)
    stored.keep(one, write(one, "last.pt", "whole"))
    (whole,) = (p for p in (tmp_path / "bucket").rglob("*") if p.is_file())
    assert whole.name == "last.pt", "nothing is left beside it"
    whole.with_name("best.pt.0123456789abcdef.part").write_text("to")
    whole.unlink()
    whole.mkdir()  # to move the next one there fails
    with pytest.raises(StorageError):
        stored.keep(one, Path(one.checkpoint_dir) / "last.pt")
    whole.rmdir()
    stored.keep(one, Path(one.checkpoint_dir) / "last.pt")
    stored.bring(spec_of(tmp_path / "b", 2))
    assert [path.name for path in (tmp_path / "b" / "7").iterdir()] == ["last.pt"]


def test_other_studies_and_trials_are_none_of_its_business(
    stored: CheckpointStore, tmp_path: Path
) -> None:
    one = spec_of(tmp_path / "a", 1)
    stored.keep(one, write(one, "last.pt", "epoch 3"))
    CheckpointStore(stored.url, "another").bring(spec_of(tmp_path / "b", 2))
    assert not (tmp_path / "b").exists()


def test_each_process_opens_it_for_itself(stored: CheckpointStore) -> None:
    stored.check()
    assert pickle.loads(pickle.dumps(stored)) == stored
    assert b"pyarrow" not in pickle.dumps(stored)


@pytest.mark.parametrize(
    "url", ["file:///proc/nowhere", pytest.param("s3://?region=x", marks=pytest.mark.slow)]
)
def test_a_place_that_takes_no_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"study\.checkpoint_copies="):
        CheckpointStore(url, "1234").check()


def test_a_place_that_is_gone_breaks_the_sweep_off(stored: CheckpointStore, tmp_path: Path) -> None:
    one = spec_of(tmp_path / "a", 1)
    (tmp_path / "bucket").write_text("no folder")
    with pytest.raises(StorageError, match="then resume the study"):
        stored.keep(one, write(one, "last.pt", "epoch 3"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("/mnt/checkpoints", "must be s3://BUCKET/PATH"),
        ("file://relative/path", "must be s3://BUCKET/PATH"),
        ("s3://AKIA:hunter2@bucket/x", "AWS_PROFILE"),
        ("s3://bucket/x?secret_key=hunter2", "AWS_PROFILE"),
    ],
)
def test_an_address_that_cannot_be_is_refused_and_no_secret_repeated(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        StudyConfig(checkpoint_copies=url)
    assert "hunter2" not in str(refused.value)


def test_a_checkpoint_is_kept_before_it_counts_and_brought_before_the_trial_begins(
    stored: CheckpointStore, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    executor = InlineExecutor(WRITING, tmp_path / "logs")
    found: list[str] = []

    def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        for event in events:
            if isinstance(event, CheckpointWritten):
                kept = sorted((tmp_path / "bucket").rglob("last.pt"))
                found.append(kept[-1].read_text())
            if isinstance(event, FinishedOutcome):
                found.append(f"finished {event.value:g}")
        return {}

    for n, machine in enumerate("ab"):
        spec = spec_of(tmp_path / machine, 0, n)
        feed, kept = stored.around(TrialFeed([spec], lambda taken: None), on_events)
        executor.execute(feed, ON_HOST, kept)
    executor.close()
    assert found == ["state 1", "finished 1", "state 2", "finished 2"]
