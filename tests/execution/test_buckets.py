"""Checkpoints in a bucket that is spoken to as Amazon's and Google's are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.execution.checkpoint_store import CheckpointStore
from tests.buckets import Bucket, Kind, bucket_of
from tests.end_to_end.server import free_port
from tests.execution.test_stored import spec_of, write


@pytest.fixture(params=Kind, ids=lambda kind: kind.name)
def bucket(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    with bucket_of(request.param, tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def test_a_trial_goes_on_elsewhere_from_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    StudyConfig(checkpoint_copies=bucket.url)
    stored = CheckpointStore(bucket.url, "1234")
    stored.check()
    first, second, third = (spec_of(tmp_path / name, n) for n, name in enumerate("aba", start=1))
    stored.keep(first, write(first, "last.pt", "epoch 3"))
    stored.keep(first, write(first, "own/best.pt", "epoch 2"))
    stored.keep(first, write(first, "last.pt", "epoch 4"))
    stored.bring(second)
    assert read(tmp_path / "b" / "7") == {"last.pt": "epoch 4", "own/best.pt": "epoch 2"}
    stored.keep(second, write(second, "last.pt", "epoch 9"))
    stored.bring(third)
    assert read(tmp_path / "a" / "7") == {"last.pt": "epoch 9", "own/best.pt": "epoch 2"}


def test_a_trial_of_which_a_bucket_has_nothing_begins(bucket: Bucket, tmp_path: Path) -> None:
    CheckpointStore(bucket.url, "1234").bring(spec_of(tmp_path / "a", 2))
    assert not (tmp_path / "a").exists()


def test_a_bucket_that_is_not_there_is_refused(bucket: Bucket) -> None:
    scheme, _, rest = bucket.url.partition("://")
    elsewhere = f"{scheme}://no-such-{rest}"
    with pytest.raises(ConfigError, match=r"no checkpoint can be kept there"):
        CheckpointStore(elsewhere, "1234").check()


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_waited_for_aloud_and_not_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Google's client tried for a quarter of an hour, without a word."""
    url = f"gs://anonymous@any/where?scheme=http&endpoint_override=127.0.0.1:{free_port()}"
    with pytest.raises(ConfigError, match=r"no checkpoint can be kept there"):
        CheckpointStore(url, "1234").check()
    assert "waiting for its answer" in caplog.text


def read(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}
