"""A registered model, served over HTTP by MLflow."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.end_to_end.program import Program
from tests.end_to_end.server import free_port

BLOCKED = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("automl", "torch"):
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)


sys.meta_path.insert(0, Blocked())
"""


def serve_champion(program: Program, name: str) -> str:
    """Its address, served where neither automl nor torch is installed."""
    elsewhere = program.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "sitecustomize.py").write_text(BLOCKED)
    port = free_port()
    program.environment["PYTHONPATH"] = str(elsewhere)
    program.environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{program.folder / 'mlflow.db'}"
    program.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ("serve", "-m", f"models:/{name}@champion", "-p", str(port), "--env-manager", "local")
    server = program.start_module("mlflow", "models", *words)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return bool(urlopen(f"{address}/health", timeout=5).status == 200)
        except OSError:
            return False

    server.wait_until(answers, "the model is served")
    return address


class RefusedError(Exception):
    """Raised with the status and the text of an answer that is none."""


def ask(address: str, columns: Sequence[str], data: Sequence[Sequence[Any]]) -> Any:
    body = {"dataframe_split": {"columns": columns, "data": data}}
    request = Request(
        f"{address}/invocations",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())["predictions"]
    except HTTPError as error:
        raise RefusedError(error.code, error.read().decode()) from error
