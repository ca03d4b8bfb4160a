"""What the delivering process loads of MLflow, and what it must not be kept from."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.tracking.mlflow_loading import load_lean, without_extras

EXTRAS = ("heavy_extra",)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules: an extra, one that can do without it, and one that cannot."""
    (tmp_path / "heavy_extra.py").write_text("")
    (tmp_path / "modest.py").write_text(
        "try:\n    import heavy_extra\nexcept ImportError:\n    heavy_extra = None\n"
    )
    (tmp_path / "demanding.py").write_text("import heavy_extra\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in (*EXTRAS, "modest", "demanding"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("modules")
def test_an_extra_is_left_away_and_there_for_who_asks_later() -> None:
    assert load_lean("modest", EXTRAS).heavy_extra is None
    assert importlib.import_module("heavy_extra") is not None


@pytest.mark.usefixtures("modules")
def test_what_cannot_do_without_has_it() -> None:
    assert load_lean("demanding", EXTRAS).heavy_extra is sys.modules["heavy_extra"]


@pytest.mark.usefixtures("modules")
def test_what_is_loaded_stays() -> None:
    extra = importlib.import_module("heavy_extra")
    assert load_lean("modest", EXTRAS).heavy_extra is extra
    assert sys.modules["heavy_extra"] is extra


def test_the_plugin_of_others_may_need_all(modules: Path) -> None:
    there = modules / "strange-1.0.dist-info"
    there.mkdir()
    (there / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (there / "entry_points.txt").write_text("[mlflow.artifact_repository]\nodd = modest:Repo\n")
    with without_extras(EXTRAS):
        assert importlib.import_module("heavy_extra") is not None


@pytest.mark.slow
def test_a_store_is_opened_and_written_without_them(folder: Path) -> None:
    """In a process of its own: in this one they are loaded already."""
    code = """
import sys
from automl.tracking.mlflow_loading import EXTRAS, load_lean, without_extras
load_lean("automl.tracking.deliver.study_delivery")
from automl.tracking.mlflow_store import open_client
from automl.tracking.tracking_uri import resolve_uri
from automl.config import TrackingConfig
with without_extras():
    client = open_client(resolve_uri(TrackingConfig()))
run = client.create_run(client.create_experiment("lean"))
client.log_metric(run.info.run_id, "loss", 0.5)
print(client.get_run(run.info.run_id).data.metrics, [n for n in EXTRAS if n in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "{'loss': 0.5} []\n"), done.stderr
