"""Where a server says that artifacts lie, and whether that is on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.tracking.deliver.artifacts import is_folder_here, local_folder
from automl.tracking.tracking_uri import TrackingUri

HERE = TrackingUri("http://127.0.0.1:5000", "tracking.uri")
ELSEWHERE = TrackingUri("http://192.0.2.1:5000", "tracking.uri")
"""An address of documentation, which no machine has."""


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("/srv/mlruns/3", Path("/srv/mlruns/3")),
        ("file:///srv/my%20runs/3", Path("/srv/my runs/3")),
        ("file://fileserver/runs", None),
        ("mlflow-artifacts:/3", None),
        ("s3://bucket/3", None),
    ],
)
def test_a_folder_is_told_from_what_is_none(place: str, folder: Path | None) -> None:
    assert local_folder(place) == folder


def test_a_disk_is_this_machines_when_its_folder_is_or_the_server_is(tmp_path: Path) -> None:
    experiment = tmp_path / "root" / "3"
    assert is_folder_here(experiment, HERE), "the server makes it with the first file"
    assert not is_folder_here(experiment, ELSEWHERE)
    assert not is_folder_here(tmp_path / "nobody" / "root" / "3", HERE)
    experiment.parent.mkdir()
    assert is_folder_here(experiment, ELSEWHERE), "a disk that they share"
