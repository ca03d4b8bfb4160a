"""`doctor`: what it finds of the machine and the installation, and what it calls wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from automl.cli import main
from automl.commands.doctor import (
    DeviceFacts,
    DiskFacts,
    DoctorFacts,
    InstalledVersions,
    MachineFacts,
    StoreFacts,
    find_problems,
    installed_versions,
)

SOUND = DoctorFacts(
    MachineFacts("0.1.0, in /a", "3.11.7, /a/python", "Linux", 2, 2**34, 2**33),
    InstalledVersions({"torch": "2.13.0"}, (), {}, ()),
    DeviceFacts(("a GPU, 8.0 GiB of 8.0 GiB free",), 1, 1),
    DiskFacts("studies", 2**40, 2**30, is_writable=True),
    StoreFacts("tracking.uri=sqlite:///mlflow.db", None),
)


def whats(facts: DoctorFacts) -> list[str]:
    return [problem.what for problem in find_problems(facts)]


def distribution(folder: Path, name: str, version: str, file: str) -> None:
    """Lay down what an installer leaves of a distribution with one file."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{file},,\n")
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).touch()  # importlib_metadata, which MLflow imports, lists only what is there


def test_nothing_is_wrong_with_a_sound_machine() -> None:
    assert whats(SOUND) == []


def test_a_machine_without_gpus_is_sound() -> None:
    assert whats(replace(SOUND, devices=DeviceFacts(("cpu",), 0, None))) == []


def test_gpus_that_torch_cannot_use_are_wrong() -> None:
    (what,) = whats(replace(SOUND, devices=DeviceFacts(("a GPU",), 2, 0)))
    assert what == "the driver has 2 GPUs, and torch can use none of them"


def test_a_driver_that_cannot_be_read_is_wrong() -> None:
    devices = DeviceFacts((), 0, None, "the devices cannot be read: Unknown Error")
    assert whats(replace(SOUND, devices=devices)) == ["the devices cannot be read: Unknown Error"]


def test_a_nearly_full_disk_is_wrong_unless_no_limit_is_set() -> None:
    disk = DiskFacts("studies", 2**29, 2**30, is_writable=True)
    (what,) = whats(replace(SOUND, disk=disk))
    assert what == "the disk of studies has 0.5 GiB free, and no trial starts below 1.0 GiB"
    assert whats(replace(SOUND, disk=replace(disk, least_bytes=None))) == []


def test_another_distribution_with_a_package_of_our_name_is_wrong(tmp_path: Path) -> None:
    distribution(tmp_path, "automl", "2.9.9", "automl/__init__.py")
    distribution(tmp_path, "harmless", "1.0", "harmless/automl/__init__.py")
    found = installed_versions([str(tmp_path), *sys.path])
    assert found.others == ["automl"]
    (problem,) = find_problems(replace(SOUND, installed=found))
    assert problem.what.startswith("automl brings a package named automl, too")
    assert problem.remedy.startswith("pip uninstall --yes automl automl-sweep")


def test_a_library_that_is_too_old_is_wrong(tmp_path: Path) -> None:
    distribution(tmp_path, "optuna", "4.9.0", "optuna/__init__.py")
    found = installed_versions([*sys.path, str(tmp_path)])
    assert found.missing == ["optuna<6,>=5.0 (here: 4.9.0)"]
    assert installed_versions(sys.path).missing == []


def test_an_extra_is_there_if_all_of_it_is(tmp_path: Path) -> None:
    found = installed_versions(sys.path).extras
    assert found["lightgbm"].startswith("lightgbm 4.")
    assert "dev" not in found
    assert set(installed_versions([str(tmp_path)]).extras.values()) == {""}


def test_the_page_says_what_is_wrong_and_exits_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["doctor", "devices.only=cpu", "study.min_free_space=1000000GiB"]
    assert main(words) == 1
    page = capsys.readouterr().out
    assert "\nwrong: the disk of studies has " in page
    assert "\n  remedy: free some" in page
    assert main([*words, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert [problem["what"].split(" has ")[0] for problem in answer["problems"]] == [
        "the disk of studies"
    ]
    assert list(tmp_path.iterdir()) == [], "it writes nothing"


def test_a_server_that_does_not_answer_is_wrong_and_its_password_is_not_shown(
    tmp_path: Path,
) -> None:
    address = "tracking.uri=http://ann:s3cret@127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-m", "automl", "doctor", "devices.only=cpu", address],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r"wrong: tracking.uri=http://\S+@127.0.0.1:9: MLflow cannot use", done.stdout)
    assert "s3cret" not in done.stdout
