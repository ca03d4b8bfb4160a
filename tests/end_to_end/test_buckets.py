"""A sweep whose checkpoints are kept in a bucket, and which goes on where there is only that."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from automl.trial import CheckpointWritten, FinishedOutcome
from tests.buckets import Kind, bucket_of
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records


@pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
def test_a_trial_goes_on_from_a_bucket_and_no_credential_is_stored(
    program: Program, tmp_path_factory: pytest.TempPathFactory, kind: Kind
) -> None:
    with bucket_of(kind, tmp_path_factory.mktemp("home")) as bucket:
        program.environment |= bucket.environment
        killed = program.start(
            *("study.name=kept", "study.n_trials=1", f"study.checkpoint_copies='{bucket.url}'"),
            *(
                *objective_words("waits_half_way"),
                "devices.only=cpu",
                "training.checkpoint_every_seconds=0",
            ),
        )
        records = Records(program.folder, "kept")
        killed.wait_until(lambda: 1 in steps_kept(records), "the second checkpoint counts")
        killed.kill()
        checkpoints = records.path / "checkpoints"
        shutil.rmtree(checkpoints)
        (records.path / "go on").touch()
        done = program.start("resume", "study.name=kept").wait()
        assert (done.code, done.stderr) == (0, "")
    assert (checkpoints / "trial-00000" / "trained").read_text() == "2\n3\n"
    assert isinstance(records.outcomes()[0], FinishedOutcome)
    written = {path: path.read_bytes() for path in files_below(program.folder)}
    assert bucket.url.encode() in written[records.path / "config.yaml"], "what it is searched for"
    for secret in bucket.secrets:
        assert [path for path, content in written.items() if secret.encode() in content] == []


def steps_kept(records: Records) -> set[int]:
    if not records.n_lines():
        return set()
    return {event.step for event in records.events() if isinstance(event, CheckpointWritten)}


def files_below(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
