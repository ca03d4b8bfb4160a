"""What of a working directory goes to the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.config.execution import RayConfig
from automl.errors import ConfigError
from automl.execution.cluster.node_files import find_code

MOST = RayConfig().max_code_bytes


def write(path: Path, n_bytes: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(n_bytes)  # takes no disk


def test_what_is_no_code_stays(tmp_path: Path) -> None:
    for name in ("train.py", "pkg/model.py", "studies/a/events.log", "mlruns/0/x", "mlflow.db"):
        write(tmp_path / name)
    for name in (
        "old/b/events.log",
        "old/b/config.yaml",
        "pkg/logs/events.log",
        "old/c.py",
        ".env.local",
        "pkg/key.pem",
        "home/.pgpass",
    ):
        write(tmp_path / name)
    for name in (".env", "pkg/.env", "venv/pyvenv.cfg", ".git/HEAD", "pkg/__pycache__/model.pyc"):
        write(tmp_path / name)
    excludes = set(find_code(tmp_path, MOST, without=[tmp_path / "studies"]).excludes)
    assert excludes == {
        *("/studies", "/mlruns", "/mlflow.db", "/.env", "/pkg/.env", "/venv", "/.git"),
        *("/pkg/__pycache__", "/old/b", "/.env.local", "/pkg/key.pem", "/home/.pgpass"),
    }


def test_what_is_too_large_is_refused_and_named(tmp_path: Path) -> None:
    for n in range(1, 8):
        write(tmp_path / f"{n}.bin", n * 5 * 2**20)
    with pytest.raises(
        ConfigError, match=r"is 140 MiB, and at most 100 .* 7.bin \(35 MiB\), "
    ) as e:
        find_code(tmp_path, MOST)
    assert "3.bin" in str(e.value)
    assert "2.bin" not in str(e.value)
    assert "allow more by ray.max_code" in str(e.value)
    assert find_code(tmp_path, 140 * 2**20).folder == tmp_path


def test_what_was_left_out_is_not_counted(tmp_path: Path) -> None:
    write(tmp_path / "mlruns" / "large", 200 * 2**20)
    assert find_code(tmp_path, MOST).excludes == ["/mlruns"]
