"""Scripts of the user's that call a sweep, without a guard, whose functions only they have."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from automl.record.signal_receiver import ECHO_SECONDS
from tests.end_to_end.program import Program

SCRIPT = """
import json, os, sys
import automl

print("main runs")  # in a worker it would be in the trial's log
held = "not-to-be-stored"
SPACE = {"lr": {"low": 0.1, "high": 1.0}}
OVERRIDES = ["devices.only=cpu", "study.seed=3"]

class Model:
    def __init__(self, scale):
        self.scale = scale
    def train(self, lr, trial):
        for step in range(3):
            trial.report(step, {"train_loss": lr}, checkpoint=lambda: {"step": step})
            trial.report(step, {"val_loss": lr * self.scale / (step + 1)})
        trial.set_tag("length", len(held))
        trial.set_tag("where", "pid %d" % os.getpid())

method = automl.sweep(Model(2.0).train, SPACE, n_trials=2, name="method", overrides=OVERRIDES)
try:
    automl.sweep(Model(3.0).train, n_trials=3, name="method")
except automl.AutoMLError as error:
    refused = f"{type(error).__name__}: {error}"
automl.sweep(Model(3.0).train, n_trials=3, name="method", changed=True)
json.dump(
    {
        "tags": sorted(set(method.trials()["tags.where"])),
        "pid": os.getpid(),
        "state": method.best.load(),
        "n_reports": list(method.trials()["n_reports"]),
        "refused": refused,
    },
    open("told.json", "w"),
)
"""


@pytest.mark.slow
def test_a_method_of_a_script_without_a_guard_is_stored_nowhere(program: Program) -> None:
    done = program.start_script(SCRIPT).wait()
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.count("main runs") == 1
    told = json.loads((program.folder / "told.json").read_text())
    assert f"pid {told['pid']}" not in told["tags"]
    assert told["state"] == {"step": 2}
    assert told["n_reports"] == [3, 3, 3]
    assert 'objective.parts.self.scale: "float, ' in told["refused"]
    assert told["refused"].startswith("ConfigError: study.name=method was begun with other")
    assert "objective.parts.source" not in told["refused"]
    assert told["refused"].endswith("beside the trials of before, by changed=True.")
    assert "the same call with name='method'" in done.stdout
    assert_nothing_of_the_function_is_stored(program.folder)
    resumed = program.call("resume", "study.name=method")
    assert resumed.code == 2
    assert "called from Python, and its function is stored nowhere. Go on with it in" in (
        resumed.stderr
    )
    assert f"{program.folder / 'script.py'}: the same call with name='method'" in resumed.stderr


def assert_nothing_of_the_function_is_stored(folder: Path) -> None:
    files = [path for path in (folder / "studies").rglob("*") if path.is_file()]
    assert any(b"self.scale" in path.read_bytes() for path in files)
    for path in files:
        content = path.read_bytes()
        assert b"not-to-be-stored" not in content, path
        assert b"cloudpickle" not in content, path
        assert b"main runs" not in content, path


HANGS = """
import os, sys, time
import automl

def make(mark):
    def train(lr):
        if not os.path.exists(mark):
            open(mark, "w").close()
            while True:
                time.sleep(1)  # reports nothing, and so learns nothing
        return lr
    return train

def call(mark="hung"):
    overrides = ["devices.only=cpu", "study.grace_seconds=1000",
                 "admission.max_concurrent_trials=1"]
    return automl.sweep(make(mark), {"lr": {"low": 0.1, "high": 1.0}}, n_trials=2, name=mark,
                        overrides=overrides)

try:
    call()
except KeyboardInterrupt as error:
    print(f"the caller lives on: {error}", flush=True)
print(call().trials()["state"].tolist(), flush=True)
call("hung-too")
print("never reached", flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_stops_the_sweep_and_again_at_once_and_the_caller_lives_on(
    program: Program,
) -> None:
    running = program.start_script(HANGS)
    running.wait_until((program.folder / "hung").exists, "a trial that hangs")
    running.signal(signal.SIGINT)
    running.wait_until(lambda: "once more: at once" in running.stdout, "the first is heard")
    running.signal(signal.SIGINT)
    running.wait_until((program.folder / "hung-too").exists, "two sweeps later")
    lived_on = "the caller lives on: study hung is interrupted; the same call goes on with it"
    assert lived_on in running.stdout
    assert "['finished', 'finished']" in running.stdout
    # SIGTERM ends the caller as it would without a sweep, and the study first.
    running.signal(signal.SIGTERM)
    running.wait_until(lambda: "SIGTERM: running trials" in running.stdout, "it is heard")
    time.sleep(2 * ECHO_SECONDS)
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert (done.code, done.stderr) == (-signal.SIGTERM, "")
    assert "go on with: the same call with name='hung-too'" in done.stdout
    assert "never reached" not in done.stdout
