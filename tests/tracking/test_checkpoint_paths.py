"""Which files become artifacts: a study's own checkpoints, wherever it stands, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.trial import CheckpointKind, CheckpointWritten
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import (
    BEGUN,
    begin,
    finish,
    sweep_ended,
    sweep_started,
    trial,
    write,
    write_checkpoint,
)

BEST = "checkpoints/trial-00000/best.pt"


def best_at(path: str) -> CheckpointWritten:
    return CheckpointWritten(0, BEGUN, step=1, path=path, kind=CheckpointKind.BEST)


def deliver_best_at(study: Path, path: str) -> list[str]:
    """Deliver two trials, of which the first names its `best.pt` so; what was refused."""
    write(study, sweep_started(), begin(0), best_at(path), finish(0), *trial(1), sweep_ended(2))
    return deliver(study)


@pytest.mark.parametrize(
    "path",
    [
        BEST,
        "{study}/" + BEST,
        "/where/it/stood/before/" + BEST,
        "/a b/" + BEST,
    ],
)
def test_a_checkpoint_is_taken_from_where_the_study_stands(
    study: Path, shown: Shown, path: str
) -> None:
    write_checkpoint(study, 0, CheckpointKind.BEST)
    assert deliver_best_at(study, path.format(study=study)) == []
    assert shown.artifacts("trial-00000") == {"best.pt": b"best of 0"}


def test_a_study_that_was_moved_keeps_its_checkpoints(
    study: Path, folder: Path, shown: Shown
) -> None:
    checkpoint = write_checkpoint(study, 0, CheckpointKind.BEST)
    write(study, sweep_started(), begin(0), checkpoint, finish(0), sweep_ended(1))
    assert str(study) not in (study / "events.log").read_text()
    moved = folder / "archive" / "elsewhere"
    moved.parent.mkdir()
    study.rename(moved)
    assert deliver(moved) == []
    assert shown.artifacts("trial-00000") == {"best.pt": b"best of 0"}


@pytest.mark.parametrize(
    "path",
    [
        "{folder}/secret.pt",
        "../../secret.pt",
        "{folder}/checkpoints/trial-00000/../../" + BEST,
        "/x/../" + BEST,
        "checkpoints/trial-00001/best.pt",
        "checkpoints/trial-00000/last.pt",
        "/checkpoints/trial-00000/best.pt\x00",
        "x/" + BEST,
        "",
        "{study}/config.yaml",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused_and_the_rest_goes_on(
    study: Path, folder: Path, shown: Shown, path: str
) -> None:
    for secret in (folder / "secret.pt", folder / BEST, study / "config.yaml"):
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("s3cret")
    for number in (0, 1):
        write_checkpoint(study, number, CheckpointKind.BEST)
        write_checkpoint(study, number, CheckpointKind.LAST)
    (refusal,) = deliver_best_at(study, path.format(folder=folder, study=study))
    assert "best.pt" in refusal
    run = shown.run("trial-00000")
    assert run.info.status == "FINISHED"
    assert shown.artifacts("trial-00000") == {}
    assert "is none of the study's checkpoints" in run.data.tags["automl.refused"]
    assert shown.run("trial-00001").info.status == "FINISHED"


@pytest.mark.parametrize("link", [BEST, "checkpoints/trial-00000", "checkpoints"])
def test_a_link_in_the_study_is_not_followed(
    study: Path, folder: Path, shown: Shown, link: str
) -> None:
    secret = folder / "secret" / BEST
    secret.parent.mkdir(parents=True)
    secret.write_text("s3cret")
    (study / link).parent.mkdir(parents=True, exist_ok=True)
    (study / link).symlink_to(folder / "secret" / link)
    (refusal,) = deliver_best_at(study, BEST)
    assert "is a link" in refusal
    assert shown.artifacts("trial-00000") == {}
    assert "is a link" in shown.run("trial-00000").data.tags["automl.refused"]
    assert shown.run("trial-00000").info.status == "FINISHED"
