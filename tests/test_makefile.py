"""What `make` says and what it leaves to git, from copies: nothing is installed here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("target", ["sweep", "test", "check", "slow", "recipes"])
def test_make_says_what_takes_minutes_before_it_begins(target: str, tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    command = ["make", "--dry-run", "-C", str(tmp_path), target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said, installs = done.stdout.index('echo "Installing'), done.stdout.index("pip install")
    assert said < done.stdout.index("-m venv") < installs


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
@pytest.mark.parametrize(
    "name",
    ["mlflow.db", ".mlflow.db.lock", ".mlflow.db.building", "studies/a/lock", "mlartifacts/1"],
)
def test_what_a_sweep_leaves_is_ignored_by_git(name: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / ".gitignore", tmp_path)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    command = ["git", "-C", str(tmp_path), "check-ignore", "--quiet", name]
    assert subprocess.run(command, check=False).returncode == 0, f"{name} would be committed"
