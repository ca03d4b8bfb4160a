"""optuna-dashboard shows a sweep that runs, by the one line of the manual."""

from __future__ import annotations

import importlib.util
import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.program import OBJECTIVES, Program
from tests.end_to_end.server import free_port

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("optuna_dashboard") is None,
    reason="needs pip install optuna-dashboard",
)
LIMIT_SECONDS = 60.0
COMMAND = "from optuna_dashboard._cli import main; main()"
"""What the command `optuna-dashboard` runs, which has no module of its own to start."""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.end_all()


def asked(address: str) -> Any:
    """The answer of the dashboard, which takes a moment to start."""
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        with suppress(OSError):
            return json.load(urllib.request.urlopen(address, timeout=10))
        time.sleep(0.1)
    raise TimeoutError(address)


def shown_trials(address: str, state: str) -> list[dict[str, Any]]:
    """The trials in a state, once the dashboard shows one."""
    until = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < until:
        study = asked(f"{address}/api/studies/0?after=0")
        if found := [trial for trial in study["trials"] if trial["state"] == state]:
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{address}: no trial is {state}")


def test_a_running_sweep_is_shown_and_then_its_end(program: Program) -> None:
    words = (
        *("objective=python", f"objective.target={OBJECTIVES}:reports_until_told"),
        *("space={lr: {low: 0.1, high: 0.2}}", "devices.only=cpu", "study.n_trials=1"),
        *("study.name=shown", "pruner=none", "tracking.uri=none"),
    )
    sweep = program.start(*words)
    journal = program.folder / "studies" / "shown" / "journal.log"
    sweep.wait_until(lambda: journal.exists() and "op_code" in journal.read_text(), "the journal")
    port = free_port()
    program.start_python("-c", COMMAND, "studies/shown/journal.log", "--port", str(port))
    address = f"http://127.0.0.1:{port}"
    [study] = asked(f"{address}/api/studies")["study_summaries"]
    assert (study["study_name"], study["directions"]) == ("shown", ["minimize"])
    [running] = shown_trials(address, "Running")
    assert [param["name"] for param in running["params"]] == ["lr"]
    (journal.parent / "go on").touch()
    [ended] = shown_trials(address, "Complete")
    assert ended["values"] == [1.0]
    noted = {each["key"]: each["value"] for each in ended["user_attrs"]}
    assert (noted["mlflow_run"], noted["device"]) == ("trial-00000", "cpu")
    assert sweep.wait().code == 0
