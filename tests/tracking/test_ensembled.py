"""An ensemble on the study's run: members, scores and the file; the newest, and once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from automl.trial import EnsembleBuilt
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import BEGUN, NAME, sweep_ended, sweep_started, trial, write

EVENT = EnsembleBuilt(BEGUN + 1000, 1234, {1: 0.75, 0: 0.25}, {"loss": 0.25, "error": 0.125})
SWEEP = (sweep_started(), *trial(0), *trial(1), sweep_ended(2))


def files(shown: Shown) -> dict[str, bytes]:
    """Of the study's run, those that stand in no folder."""
    client, run_id = shown.client, shown.run(NAME).info.run_id
    paths = [info.path for info in client.list_artifacts(run_id) if not info.is_dir]
    return {path: Path(client.download_artifacts(run_id, path)).read_bytes() for path in paths}


def is_shown(shown: Shown, file: bytes) -> None:
    run = shown.run(NAME)
    metrics = {k: v for k, v in run.data.metrics.items() if k.startswith("ensemble_")}
    assert metrics == {"ensemble_loss": 0.25, "ensemble_error": 0.125}
    said = run.data.tags["automl.ensemble"]
    assert said == "trial-00001 0.75, trial-00000 0.25; chosen by 1,234 rows"
    assert files(shown)["ensemble.pt"] == file
    assert run.info.status == "FINISHED"


def test_it_stands_on_the_run_of_the_study(study: Path, shown: Shown) -> None:
    write(study, *SWEEP)
    deliver(study)
    (study / "ensemble.pt").write_bytes(b"model")
    write(study, EVENT)
    for _ in range(2):  # and once, where it is delivered again
        assert deliver(study) == []
        is_shown(shown, b"model")
        (study / "events.delivered").unlink()


def test_the_newest_is_shown(study: Path, shown: Shown) -> None:
    (study / "ensemble.pt").write_bytes(b"newer")
    older = replace(EVENT, time=BEGUN + 500, members={0: 1.0}, scores={"loss": 0.5, "error": 1.0})
    write(study, *SWEEP, older, EVENT)
    assert deliver(study) == []
    is_shown(shown, b"newer")
    write(study, replace(EVENT, time=BEGUN + 2000, scores={"loss": 0.125}))
    deliver(study)
    assert shown.run(NAME).data.metrics["ensemble_loss"] == 0.125


def test_a_file_that_is_gone_or_elsewhere_is_not_sent(
    study: Path, shown: Shown, tmp_path: Path
) -> None:
    write(study, *SWEEP, EVENT)
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (study / "ensemble.pt").symlink_to(secret)
    assert deliver(study) == []
    assert "ensemble.pt" not in files(shown)
    assert shown.run(NAME).data.metrics["ensemble_loss"] == 0.25


def test_pictures_of_what_it_found_stand_in_a_folder(
    study: Path, shown: Shown, tmp_path: Path
) -> None:
    (study / "plots").mkdir()
    (study / "plots" / "errors.png").write_bytes(b"png")
    (study / "plots" / "secret.txt").write_bytes(b"of whoever made the study")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (study / "plots" / "calibration.png").symlink_to(secret)
    write(study, *SWEEP, EVENT)
    assert deliver(study) == []
    run_id = shown.run(NAME).info.run_id
    paths = [info.path for info in shown.client.list_artifacts(run_id, "plots")]
    assert paths == ["plots/errors.png"]
    assert Path(shown.client.download_artifacts(run_id, paths[0])).read_bytes() == b"png"


def test_a_folder_of_pictures_that_is_a_link_is_not_followed(
    study: Path, shown: Shown, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "errors.png").write_bytes(b"secret")
    (study / "plots").symlink_to(tmp_path / "elsewhere")
    write(study, *SWEEP, EVENT)
    deliver(study)
    assert shown.client.list_artifacts(shown.run(NAME).info.run_id, "plots") == []
