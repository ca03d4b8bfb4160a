"""The wheel: built without a network, unpacked elsewhere, it finds its `conf/`."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import automl
from automl.cli.command_registry import conf_dir

pytestmark = pytest.mark.slow
ROOT = Path(automl.__file__).parents[1]
PLUGIN_PATH = ROOT / "automl" / "api" / "hydra_sweeper" / "plugin_path"


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
    found = [path for path in package.rglob("*.py") if not path.is_relative_to(PLUGIN_PATH)]
    ours = {path.relative_to(package) for path in found}
    theirs = installed / "automl"
    assert {path.relative_to(theirs) for path in theirs.rglob("*.py")} == ours
    assert (theirs / "py.typed").exists(), "type checkers read the annotations"
    assert {path.name for path in installed.iterdir()} == {
        "automl",
        "hydra_plugins",
        f"automl_sweep-{installed_version(installed)}.dist-info",
    }


def test_its_metadata_say_what_an_index_shows(installed: Path) -> None:
    (info,) = installed.glob("*.dist-info")
    text = (info / "METADATA").read_text("utf-8")
    fields = email.message_from_string(text)
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields.get_all("License-File") == ["LICENSE"]
    licence = (info / "licenses" / "LICENSE").read_text("utf-8")
    assert licence == (ROOT / "LICENSE").read_text("utf-8")
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["Author"] == "The automl-sweep contributors"
    assert "Typing :: Typed" in (fields.get_all("Classifier") or [])
    assert fields["Keywords"]
    description = str(fields.get_payload())
    assert description.startswith("# automl-sweep")
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert [link for link in links if not link.startswith("https://")] == []


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


FIND = (
    "from hydra.core.plugins import Plugins as P; print(*sorted(P.instance().class_name_to_class))"
)
SWEEPER = "hydra_plugins.automl_sweeper.AutomlSweeper"


def test_hydra_finds_the_plugin(installed: Path, tmp_path: Path) -> None:
    modules = [path.name for path in (installed / "hydra_plugins").glob("*.py")]
    assert modules == ["automl_sweeper.py"], "and no __init__.py"
    assert SWEEPER in run(installed, tmp_path, "-c", FIND).split()


def test_hydra_finds_the_plugin_of_an_editable_install(tmp_path: Path) -> None:
    build = f"from hatchling.build import build_editable; print(build_editable({str(tmp_path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", build],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".pth"))
        paths = archive.read(name).decode().split()
        assert not [name for name in archive.namelist() if name.startswith("hydra_plugins")]
    assert paths == [str(ROOT), str(PLUGIN_PATH)]
    assert SWEEPER in run(PLUGIN_PATH, tmp_path, "-c", FIND).split()
