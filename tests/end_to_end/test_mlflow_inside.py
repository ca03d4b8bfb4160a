"""What objectives log through MLflow is in their trials' own runs: one sweep, each trial a way."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.program import Done, Program
from tests.end_to_end.records import Records
from tests.plugins import write_entry_points

if TYPE_CHECKING:
    from mlflow.entities import Run


pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Swept:
    """The one sweep, and what is in MLflow's store after it."""

    done: Done
    records: Records
    runs: dict[str, Run]
    """By way."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Swept]:
    """In a folder where MLflow was never used: two workers meet there."""
    folder = tmp_path_factory.mktemp("inside")
    shutil.copyfile(empty_database, folder / "other.db")
    program = Program(folder)
    installed = write_entry_points(folder / "installed")
    program.environment["PYTHONPATH"] = f"{installed}:{program.environment['PYTHONPATH']}"
    del program.environment["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"]  # of the tests' own process
    choices = ",".join(NAMES)
    done = program.run(
        *("study.name=inside", "objective=python"),
        "objective.target=tests.end_to_end.mlflow_ways:train",
        f"space={{way: {{choices: [{choices}]}}, lr: 0.01}}",
        *("sampler=grid", "pruner=none", f"study.n_trials={len(NAMES)}"),
        "admission.max_concurrent_trials=2",
    )
    records = Records(folder, "inside")
    runs = {run.data.params["way"]: run for run in records.trial_runs().values()}
    yield Swept(done, records, runs)
    program.end_all()


@dataclass(frozen=True)
class Expected:
    """Of a trial's run, beside what every trial has."""

    metrics: dict[str, list[tuple[int, float]]]
    """Step and value of all that was logged, in the order of steps."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    artifacts: tuple[str, ...] = ()
    value: float = 1.0
    status: str = "FINISHED"


def once(value: float = 1.0, step: int = 0) -> list[tuple[int, float]]:
    return [(step, value)]


LOSS = {"val_loss": once()}
EXPECTED = {
    "one_run": Expected(
        {"val_loss": [(0, 3), (1, 2), (2, 1)], "train_loss": [(0, 2), (1, 1), (2, 0)]},
        {"batch": "32"},
        {"by": "ann", "description": "a try"},
        ("notes/it.txt",),
    ),
    "two_in_sequence": Expected(
        {"val_loss": [(0, 1), (1, 2), (2, 1), (3, 2)]},
        {"stage": "pretrain", "batch": "8", "finetune.stage": "finetune"},
        artifacts=("finetune/it.txt", "it.txt"),
    ),
    "nested": Expected(
        {"val_loss": once(), "fold_loss": [(0, 0.5), (1, 1.5)]},
        {"fold": "0", "fold-1.fold": "1"},
    ),
    "bare": Expected(
        {"val_loss": [(0, 3), (1, 2), (2, 2)], "other": [(0, 3), (1, 2), (2, 2)]}, value=2.0
    ),
    "own_experiment": Expected(LOSS),
    "own_address": Expected({}, value=1.5),
    "params_again": Expected(LOSS, {"run-2.lr": "0.02"}),
    "raised_and_caught": Expected(LOSS | {"after": once()}),
    "raised": Expected(LOSS, status="FAILED"),
    "by_client": Expected({"val_loss": once(step=4)}, tags={"made": "by hand"}),
    "in_a_thread": Expected(LOSS),
    "left_open": Expected(LOSS),
    "reads_back": Expected({"val_loss": [(0, 3), (1, 2), (2, 1)]}, {"batch": "8"}),
    "logged_model": Expected(LOSS),
}
NAMES = (*EXPECTED, "autolog")


@pytest.mark.parametrize("way", EXPECTED)
def test_all_that_was_logged_is_in_the_trials_own_run(way: str, swept: Swept) -> None:
    expected, run = EXPECTED[way], swept.runs[way]
    own = {"value", "best_val_loss", "memory_peak_bytes"}
    logged = set(run.data.metrics) - own
    assert {name: history(swept, run, name) for name in logged} == expected.metrics
    assert run.data.params == {"way": way, "lr": "0.01"} | expected.params
    theirs = {k: v for k, v in run.data.tags.items() if not k.startswith(("automl.", "mlflow."))}
    assert theirs == expected.tags
    assert run.info.status == expected.status
    if run.info.status == "FINISHED":
        assert run.data.metrics["value"] == expected.value
    files = artifacts(run)
    assert set(expected.artifacts) <= files
    assert way in ("logged_model",) or files == set(expected.artifacts)


def test_each_trial_has_one_run_and_nothing_else_is_in_the_store(swept: Swept) -> None:
    assert swept.done.code == 0, swept.done.stderr
    assert set(swept.runs) == set(NAMES)
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{swept.records.path.parents[1] / 'mlflow.db'}")
    assert {e.name for e in client.search_experiments()} == {"Default", "inside"}
    assert len(client.search_runs(["0"])) == 0


def test_autolog_logs_its_params_and_metrics(swept: Swept) -> None:
    run = swept.runs["autolog"]
    assert run.data.params["C"] == "7.0"
    assert "training_accuracy_score" in run.data.metrics
    assert run.data.tags["estimator_name"] == "LogisticRegression"
    assert run.info.status == "FINISHED"


def test_a_model_that_was_logged_is_an_artifact_of_the_run(swept: Swept) -> None:
    assert {"line/MLmodel", "line/requirements.txt"} <= artifacts(swept.runs["logged_model"])


def test_what_becomes_of_an_address_or_experiment_of_its_own_is_said_once(swept: Swept) -> None:
    said = swept.done.stdout + swept.done.stderr
    assert said.count("set_tracking_uri('sqlite:///other.db') is followed") == 1
    assert said.count("its experiment mine is not made") == 1
    assert said.count("its experiment of the module is not made") == 1


def test_what_went_to_an_address_of_its_own_is_there(swept: Swept) -> None:
    from mlflow import MlflowClient

    other = MlflowClient(f"sqlite:///{swept.records.path.parents[1] / 'other.db'}")
    (run,) = other.search_runs(["0"])
    assert run.data.metrics == {"val_loss": 1.0}


def history(swept: Swept, run: Run, metric: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{swept.records.path.parents[1] / 'mlflow.db'}")
    points = client.get_metric_history(run.info.run_id, metric)
    return sorted((point.step, point.value) for point in points)


def artifacts(run: Run) -> set[str]:
    """Paths of the run's files."""
    folder = Path(run.info.artifact_uri)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in files}
