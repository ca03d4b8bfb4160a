"""Sweeps over programs: as a user types them, killed in their midst, and refused."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from automl.trial import FailedOutcome, FinishedOutcome, PrunedOutcome
from tests.end_to_end.conftest import Call, snapshot
from tests.end_to_end.program import Program, wait_until
from tests.end_to_end.records import Records
from tests.plugins import write_entry_points
from tests.processes import is_running

pytestmark = pytest.mark.slow

PYTHON = shlex.quote(sys.executable)
TRAIN = """
import argparse, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.add_argument("--nesterov", action="store_true")
args = parser.parse_args()
assert "torch" not in sys.modules
os.makedirs(os.environ["AUTOML_TRIAL_DIR"] + "/plots")
with open(os.environ["AUTOML_TRIAL_DIR"] + "/plots/curve.txt", "w") as file:
    for epoch in range(9):
        val_loss = args.learning_rate + 1 / (epoch + 1)
        print(f"epoch {epoch}: train loss {val_loss / 2}, val loss {val_loss}")
        print(val_loss, file=file, flush=True)
        time.sleep(0.02)
open("model.pt", "w").write("the last one's")
"""
SPACE = "space={learning_rate: {choices: [0.1, 0.2, 5.0, 9.0]}, nesterov: {choices: [true, false]}}"


def test_a_program_is_swept_unchanged(folder: Path, call: Call) -> None:
    (folder / "train.py").write_text(TRAIN)
    done = call(
        "objective=command",
        f"objective.command={PYTHON} train.py",
        SPACE,
        "study.name=swept",
        "study.n_trials=8",
        "sampler=grid",
        "pruner.max_steps=9",
        "devices.only=cpu",
    )
    assert (done.code, done.stderr) == (0, ""), done.stderr
    records = Records(folder, "swept")
    outcomes = records.outcomes()
    assert {type(outcome) for outcome in outcomes.values()} == {FinishedOutcome, PrunedOutcome}
    best = min(
        outcome.value for outcome in outcomes.values() if isinstance(outcome, FinishedOutcome)
    )
    assert best == 0.1 + 1 / 9
    assert "model.pt was written by more than one trial" in done.stdout
    client, runs = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}"), records.trial_runs()
    for number, run in runs.items():
        path = client.download_artifacts(run.info.run_id, "files/plots/curve.txt")
        n_lines = Path(path).read_text().count("\n")
        assert n_lines == 9 or isinstance(outcomes[number], PrunedOutcome)
        assert run.data.metrics["train_loss"] == run.data.metrics["val_loss"] / 2
    log = (records.path / "logs" / "trial-00000.log").read_text()
    assert log.startswith(f"$ {sys.executable} train.py --learning-rate=")


RESUMED = """
import os, subprocess, sys, time
path = sys.argv[1] + "/epoch"
start = int(open(path).read()) + 1 if os.path.exists(path) else 0
for epoch in range(start, 4):
    print(f"epoch={epoch} val_loss={float(os.environ['AUTOML_LR']) + epoch}")
    open(path, "w").write(str(epoch))
    if epoch == 1:
        own = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(1000)"
        subprocess.run([sys.executable, "-c", own], start_new_session=True)
"""


def test_a_killed_sweep_takes_its_programs_along_and_goes_on(program: Program) -> None:
    (program.folder / "train.py").write_text(RESUMED)
    pid_file = program.folder / "pid"
    sweep = program.start(
        "objective=command",
        f"objective.command={PYTHON} train.py {{checkpoint_dir}} {{json}}",
        "space={lr: 0.5}",
        "study.name=killed",
        "study.n_trials=1",
        "devices.only=cpu",
    )
    sweep.wait_until(lambda: pid_file.exists() and pid_file.read_text() != "", "it has begun")
    records = Records(program.folder, "killed")
    sweep.wait_until(lambda: len(records.losses()) == 2, "its reports")
    sweep.kill()
    pid = int(pid_file.read_text())
    wait_until(lambda: not is_running(pid), "a session of its own does not save it")
    done = program.call("resume", "study.name=killed")
    assert (done.code, done.stderr) == (0, "")
    assert [step for _, step in records.losses()] == [0, 1, 2, 3]
    assert [e.value for e in records.outcomes().values() if isinstance(e, FinishedOutcome)] == [0.5]


def test_a_space_that_its_flags_do_not_fit_is_refused(folder: Path, call: Call) -> None:
    (folder / "train.py").write_text(TRAIN)
    before = snapshot(folder)
    done = call(
        "objective=command",
        f"objective.command={PYTHON} train.py",
        "space={lr: {low: 0.1, high: 0.2}}",
    )
    assert done.code == 2
    assert "space.lr: the program has no flag --lr. It has: --learning-rate, --nester" in (
        done.stderr
    )
    assert snapshot(folder) == before


def test_a_metric_that_is_never_printed_stops_the_sweep(folder: Path, call: Call) -> None:
    (folder / "train.py").write_text("print('loss: 3')")
    done = call(
        "objective=command",
        f"objective.command={PYTHON} train.py",
        "space={lr: {low: 0.1, high: 0.2}}",
        "study.name=unseen",
        "execution=inline",
        "devices.only=cpu",
        "admission.max_concurrent_trials=1",
    )
    assert done.code == 1
    assert "study.metric=val_loss was never printed; seen: loss. Set study.metric to" in done.stderr
    (outcome,) = Records(folder, "unseen").outcomes().values()
    assert isinstance(outcome, FailedOutcome)


LOGGING = """
import mlflow
with mlflow.start_run():
    mlflow.log_metric("theirs", 3.0)
print("val_loss: 1")
"""


@pytest.mark.parametrize("inside", ["follow", "redirect"])
def test_what_a_program_of_another_environment_logs_is_joined_where_that_is_wanted(
    inside: str, program: Program
) -> None:
    """Its MLflow knows the variables, and no store of ours. Nobody has used the folder before."""
    (program.folder / "train.py").write_text(LOGGING)
    other = program.folder / "other"
    (other / "lib" / "python3.11" / "site-packages" / "mlflow-3.0.dist-info").mkdir(parents=True)
    (other / "bin").mkdir()
    (other / "bin" / "python").write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    (other / "bin" / "python").chmod(0o755)
    installed = write_entry_points(program.folder / "installed")
    program.environment["PYTHONPATH"] = f"{installed}:{program.environment['PYTHONPATH']}"
    done = program.run(
        "objective=command",
        "objective.command=other/bin/python train.py {json}",
        "space={lr: 0.5}",
        "study.name=joined",
        "study.n_trials=1",
        "devices.only=cpu",
        f"tracking.inside={inside}",
    )
    assert done.code == 0, done.stderr
    is_joined = inside == "redirect"
    said = done.stdout + done.stderr
    assert ("is of another environment: what it logs goes" in said) is not is_joined
    (run,) = Records(program.folder, "joined").trial_runs().values()
    assert run.data.metrics.get("theirs") == (3.0 if is_joined else None)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["val_loss"] == 1.0
