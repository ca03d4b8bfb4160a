"""The wheel: built without a network, unpacked elsewhere, it finds its `conf/`."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import automl
from automl.cli.command_registry import conf_dir

pytestmark = pytest.mark.slow
ROOT = Path(automl.__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content, as an installer lays it down."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(installed: Path, cwd: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed)},
    )
    return done.stdout


def test_it_holds_every_file_of_conf(installed: Path) -> None:
    ours = {path.relative_to(conf_dir()) for path in conf_dir().rglob("*.yaml")}
    theirs = installed / "automl" / "conf"
    assert {path.relative_to(theirs) for path in theirs.rglob("*.yaml")} == ours


def test_it_holds_every_module_and_no_test(installed: Path) -> None:
    package = ROOT / "automl"
    ours = {path.relative_to(package) for path in package.rglob("*.py")}
    theirs = installed / "automl"
    assert {path.relative_to(theirs) for path in theirs.rglob("*.py")} == ours
    assert (theirs / "py.typed").exists(), "type checkers read the annotations"
    assert {path.name for path in installed.iterdir()} == {
        "automl",
        f"automl_sweep-{installed_version(installed)}.dist-info",
    }


def installed_version(installed: Path) -> str:
    (info,) = installed.glob("*.dist-info")
    return info.name.removesuffix(".dist-info").partition("-")[2]


def test_it_composes_from_its_own_conf(installed: Path, tmp_path: Path) -> None:
    where = "import automl.cli.command_registry as p; print(p.conf_dir())"
    assert Path(run(installed, tmp_path, "-c", where).strip()) == installed / "automl" / "conf"
    shown = run(installed, tmp_path, "-m", "automl", "--cfg", "job", "data=digits")
    assert "kind: digits" in shown
    assert "tpe*" in run(installed, tmp_path, "-m", "automl", "help", "settings")
    assert list(tmp_path.iterdir()) == []


def test_an_application_composes_it_from_any_folder(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("defaults: [/sweep@automl, _self_]\n")
    code = (
        "import hydra, automl; automl.register_configs()\n"
        f"with hydra.initialize_config_dir({str(tmp_path)!r}, version_base='1.3'):\n"
        "    cfg = hydra.compose('own', ['sampler@automl.sampler=random'])\n"
        "print(automl.__file__, cfg.automl.study.dir)"
    )
    shown = run(installed, tmp_path, "-c", code)
    assert shown == f"{installed / 'automl' / '__init__.py'} studies\n"
