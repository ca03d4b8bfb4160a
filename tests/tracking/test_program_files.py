"""What a program wrote for its trial becomes artifacts once that has ended, and no link does."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.tracking.program_files import MAX_FILES, with_program_files
from automl.tracking.run_update import RunUpdate
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import begin, finish, sweep_ended, sweep_started, write

FILES = "checkpoints/trial-00000/files"


def stored(shown: Shown, below: str = "files") -> dict[str, str]:
    """Paths and contents among the run's artifacts."""
    run_id = shown.run("trial-00000").info.run_id
    found: dict[str, str] = {}
    for info in shown.client.list_artifacts(run_id, below):
        if info.is_dir:
            found |= stored(shown, info.path)
        else:
            found[info.path] = Path(shown.client.download_artifacts(run_id, info.path)).read_text()
    return found


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_keep_their_folders(study: Path, shown: Shown) -> None:
    put(study / FILES / "model.txt", "model")
    put(study / FILES / "plots/a/curve.txt", "curve")
    write(study, sweep_started(), begin(0))
    assert deliver(study) == []
    assert stored(shown) == {}, "it has not ended"
    write(study, finish(0), sweep_ended(1))
    assert deliver(study) == []
    assert stored(shown) == {"files/model.txt": "model", "files/plots/a/curve.txt": "curve"}


@pytest.mark.parametrize("link", [FILES, f"{FILES}/secret", f"{FILES}/folder", FILES[:-6]])
def test_links_are_none_of_them(study: Path, folder: Path, shown: Shown, link: str) -> None:
    put(folder / "elsewhere" / "files" / "secret", "s3cret")
    (study / link).parent.mkdir(parents=True, exist_ok=True)
    (study / link).symlink_to(folder / "elsewhere" / ("files/secret" if "secret" in link else ""))
    write(study, sweep_started(), begin(0), finish(0), sweep_ended(1))
    deliver(study)
    assert stored(shown) == {}
    assert shown.run("trial-00000").info.status == "FINISHED"


def test_of_too_many_the_rest_is_refused_aloud(study: Path) -> None:
    for n in range(MAX_FILES + 1):
        put(study / FILES / f"{n:04d}")
    update = with_program_files(study_update(), study, 0)
    assert len(update.program_files) == MAX_FILES
    assert update.refused == [
        f"{FILES} has more than {MAX_FILES} files; the others were not stored"
    ]


def study_update() -> RunUpdate:
    return RunUpdate(
        name="trial-00000",
        start_ms=0,
        key={},
        birth_tags={},
        params={},
        begins=False,
        tags={},
        metrics=(),
    )
