"""One sweep with real Optuna, torch and MLflow, looked at from every side that a user has."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from mlflow.entities import Run

import automl
from tests.end_to_end.browser import Look, OpenPage, look, open_page
from tests.end_to_end.program import Done, Program, Running, objective_words
from tests.end_to_end.records import Records
from tests.end_to_end.server import free_port

__all__ = ["look", "open_page"]

N_EPOCHS = 4
LOSSES = ("train_loss", "val_loss")
# Each trial's end is certain: two that learn, one that overflows, one that stands still and is
# the worst at its first rung.
WORDS = (
    "study.name=whole",
    "study.n_trials=4",
    "study.enqueue=[{lr: 0.2}, {lr: 0.5}, {lr: 1e30}, {lr: 1e-9}]",
    "space={lr: {low: 1e-9, high: 1e30, log: true}, optimizer: sgd, width: 16, batch_size: 32}",
    f"training.epochs={N_EPOCHS}",
    "pruner.min_steps=1",
    "pruner.factor=2",
    "pruner.min_trials=3",
    "admission.max_concurrent_trials=1",
    "devices.only=cpu",
    "execution.pack=off",
)


TWO = ("study.name=remote", "study.n_trials=2", "study.direction=maximize", "devices.only=cpu")


@pytest.fixture(scope="module")
def swept(module_program: Program) -> Done:
    (module_program.folder / "mlflow.db").unlink()  # this sweep meets a folder that is empty
    return module_program.run(*WORDS)


@pytest.fixture
def records(swept: Done, module_program: Program) -> Records:
    return Records(module_program.folder, "whole")


def test_it_ends_well_and_says_what_to_do_next(swept: Done) -> None:
    assert (swept.code, swept.stderr) == (0, "")
    assert "whole: 2 finished, 1 pruned, 1 failed" in swept.stdout
    assert "best model: studies/whole/best.pt\n" in swept.stdout
    assert "trial 2 failed: DivergedError: training diverged in epoch 0" in swept.stdout
    assert "see it all: python -m automl ui" in swept.stdout


def test_its_last_progress_line_has_all_trials(swept: Done) -> None:
    progress = re.findall(r"^(\d)/4 trials \((.*?)\)", swept.stdout, re.MULTILINE)
    assert progress[-1] == ("4", "2 finished, 1 pruned, 1 failed")


def test_it_says_where_to_see_it_all(swept: Done) -> None:
    assert "see it all: python -m automl ui whole\n" in swept.stdout


def test_a_run_for_the_study_and_one_for_each_trial(records: Records) -> None:
    parent, trials = records.parent(), records.trial_runs()
    assert {n: run.info.status for n, run in trials.items()} == {
        0: "FINISHED",
        1: "FINISHED",
        2: "FAILED",
        3: "KILLED",
    }
    assert {n: run.info.run_name for n, run in trials.items()} == {
        n: f"trial-{n:05d}" for n in range(4)
    }
    assert {run.data.tags["mlflow.parentRunId"] for run in trials.values()} == {parent.info.run_id}
    assert (parent.info.run_name, parent.info.status) == ("whole", "FINISHED")


def test_the_study_s_run_holds_the_summary(records: Records) -> None:
    parent = records.parent()
    assert parent.data.metrics["trials_finished"] == 2
    assert parent.data.metrics["trials_pruned"] == 1
    assert parent.data.metrics["trials_failed"] == 1
    assert parent.data.metrics["best_value"] == min(
        run.data.metrics["value"]
        for run in records.trial_runs().values()
        if "value" in run.data.metrics
    )


def test_settings_are_read_and_make_no_columns(records: Records, module_program: Program) -> None:
    parent = records.parent()
    assert parent.data.params == {}
    assert {key for run in records.runs() for key in run.data.params} == set(records.params()[0])
    note = parent.data.tags["mlflow.note.content"]
    assert "minimizes `val_loss`" in note
    assert "| lr | log:1e-09..1e+30 |" in note
    client = MlflowClient(f"sqlite:///{module_program.folder / 'mlflow.db'}")
    artifacts = client.list_artifacts(parent.info.run_id)
    assert {artifact.path for artifact in artifacts} == {"config.yaml", "report.html"}
    stored = Path(client.download_artifacts(parent.info.run_id, "config.yaml"))
    assert stored.read_bytes() == (records.path / "config.yaml").read_bytes()


def test_params_and_both_losses_by_epoch(records: Records) -> None:
    runs, losses, params = records.trial_runs(), records.losses(), records.params()
    n_epochs = {0: N_EPOCHS, 1: N_EPOCHS, 2: 0, 3: len(records.steps(runs[3], LOSSES[0]))}
    assert n_epochs[3] in (1, 2), "pruned at its first report, at most one report late"
    for number, run in runs.items():
        assert run.data.params == {name: str(value) for name, value in params[number].items()}
        for loss in LOSSES:
            assert records.steps(run, loss) == list(range(n_epochs[number])), f"trial {number}"
    assert runs[1].data.params["lr"] == "0.5"
    assert runs[1].data.metrics["val_loss"] == losses[1, N_EPOCHS - 1]["val_loss"]


def test_tags(records: Records) -> None:
    runs = records.trial_runs()
    states = {n: run.data.tags["automl.state"] for n, run in runs.items()}
    assert states == {0: "finished", 1: "finished", 2: "failed", 3: "pruned"}
    assert {run.data.tags["automl.device"] for run in runs.values()} == {"cpu"}
    assert len({run.data.tags["automl.study"] for run in records.runs()}) == 1
    assert "training diverged" in runs[2].data.tags["automl.cause"]


def test_optuna_s_own_backend_reads_the_journal(records: Records) -> None:
    assert records.optuna_states() == {0: "COMPLETE", 1: "COMPLETE", 2: "FAIL", 3: "PRUNED"}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_optuna_dashboard_finds_names_and_attributes(records: Records) -> None:
    study = records.optuna_study()
    assert study.metric_names == ["val_loss"]
    noted = {trial.number: trial.user_attrs for trial in study.get_trials(deepcopy=False)}
    for number, attributes in noted.items():
        assert attributes["mlflow_run"] == f"trial-{number:05d}"
        assert attributes["device"] == "cpu"
    assert {number for number, attributes in noted.items() if "cause" in attributes} == {2}
    assert noted[2]["cause"].startswith("DivergedError: training diverged in epoch 0")


def test_artifacts_load_and_the_model_predicts(records: Records, module_program: Program) -> None:
    client = MlflowClient(f"sqlite:///{module_program.folder / 'mlflow.db'}")
    run_id = records.trial_runs()[1].info.run_id
    for name in ("last.pt", "best.pt"):
        path = client.download_artifacts(run_id, f"checkpoints/{name}")
        content = torch.load(path, weights_only=True)
        assert (content["trial"], content["params"]["lr"]) == (1, 0.5)
    points = np.array([[0.0, 0.0], [0.1, -0.1], [0.95, 0.95], [-0.95, 0.9]])
    labels = automl.load(path).predict(points)
    assert list(labels) == [1, 1, 0, 0]


# --- the UI ---


@pytest.fixture(scope="module")
def served(swept: Done, module_program: Program) -> Iterator[Running]:
    """`python -m automl ui`, which has said its address."""
    running = module_program.start("ui", f"port={free_port()}")
    running.wait_until(lambda: "(Ctrl-C ends it)\n" in running.stdout, "its address")
    yield running
    _end_politely(running)


@pytest.fixture
def address(served: Running) -> str:
    """What `ui` has printed."""
    (found,) = re.findall(r"http://\S+", served.stdout)
    return str(found)


@pytest.fixture
def ui(address: str) -> int:
    """The port that the address names."""
    return int(address.split(":")[2].split("/")[0])


def _end_politely(running: Running) -> None:
    running.process.terminate()
    assert running.wait().code == 0


def ask(port: int, path: str, body: object = None, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        headers = {"Host": host or f"127.0.0.1:{port}", "Content-Type": "application/json"}
        method = "GET" if body is None else "POST"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.slow
def test_the_ui_answers_with_the_runs_in_it(ui: int) -> None:
    status, page = ask(ui, "/")
    assert status == 200
    assert b"<html" in page
    assert b"mlflow.workflowType" in page, "else MLflow opens runs on its GenAI side"
    _, experiment = ask(ui, "/api/2.0/mlflow/experiments/get-by-name?experiment_name=whole")
    number = json.loads(experiment)["experiment"]["experiment_id"]
    status, found = ask(ui, "/api/2.0/mlflow/runs/search", {"experiment_ids": [number]})
    assert status == 200
    names = {run["info"]["run_name"] for run in json.loads(found)["runs"]}
    assert names == {"whole", *(f"trial-{n:05d}" for n in range(4))}


@pytest.mark.slow
def test_the_ui_refuses_a_foreign_host(ui: int) -> None:
    assert ask(ui, "/", host="10.evil.example")[0] == 403
    assert ask(ui, "/", host=f"localhost:{ui}")[0] == 200


# --- the address it prints ---


def experiment_of(port: int, address: str) -> dict[str, Any]:
    """The experiment whose runs the address opens, as MLflow gives it."""
    number = re.search(r"/#/experiments/(\w+)/runs\?", address)
    assert number is not None, address
    status, found = ask(port, f"/api/2.0/mlflow/experiments/get?experiment_id={number[1]}")
    assert status == 200
    return dict(json.loads(found)["experiment"])


def view_of(experiment: dict[str, Any], address: str) -> dict[str, Any]:
    """The view of the runs that the address asks for by a key."""
    asked = parse_qs(address.partition("?")[2])
    assert asked["workflowType"] == ["machine_learning"], "else MLflow opens on its GenAI side"
    tags = {tag["key"]: tag["value"] for tag in experiment["tags"]}
    envelope = json.loads(tags[f"mlflow.sharedViewState.{asked['viewStateShareKey'][0]}"])
    assert set(envelope) == {"name", "createdAt", "updatedAt", "state"}
    return dict(json.loads(envelope["state"]))


def best_first(records: Records) -> list[Run]:
    """The runs of the trials that have a value."""
    runs = [run for run in records.trial_runs().values() if "value" in run.data.metrics]
    return sorted(runs, key=lambda run: float(run.data.metrics["value"]))


@pytest.mark.slow
def test_the_address_leads_to_the_study_s_runs_best_first(
    ui: int, address: str, records: Records
) -> None:
    experiment = experiment_of(ui, address)
    assert experiment["name"] == "whole"
    view = view_of(experiment, address)
    assert view["selectedColumns"][:2] == ["metrics.`best_val_loss`", "params.`lr`"]
    assert view["compareRunCharts"][0]["metricKey"] == "val_loss"
    assert "params.`width`" not in view["selectedColumns"], "it is the same in all"
    order = f"{view['orderByKey']} {'ASC' if view['orderByAsc'] else 'DESC'}"
    asked = {"experiment_ids": [experiment["experiment_id"]], "order_by": [order]}
    status, found = ask(ui, "/api/2.0/mlflow/runs/search", asked)
    assert status == 200
    names = [run["info"]["run_name"] for run in json.loads(found)["runs"]]
    assert names[:3] == [run.info.run_name for run in best_first(records)]


def test_a_browser_shows_the_trials_best_first(address: str, look: Look, records: Records) -> None:
    shown, runs = look(address), best_first(records)
    assert len(runs) == 3
    for row, run in zip(shown.rows, runs, strict=False):
        assert row["attributes.`Run Name`"].endswith(str(run.info.run_name))
        assert float(row["metrics.`best_val_loss`"]) == run.data.metrics["value"]
        assert row["params.`lr`"] == run.data.params["lr"]
        assert row["tags.`automl.state`"] == run.data.tags["automl.state"]
    params = {column for column in shown.columns if column.startswith("params.")}
    assert params == {"params.`lr`"}


def test_a_browser_shows_the_page_of_a_run_outside_of_the_genai_side(
    ui: int, address: str, open_page: OpenPage, records: Records
) -> None:
    """Its address says nothing of a side: it is what a click on a run opens."""
    info = records.trial_runs()[0].info
    page = open_page(f"http://127.0.0.1:{ui}/#/experiments/{info.experiment_id}/runs/{info.run_id}")
    assert str(info.run_name) in page
    assert "Model registry" in page
    assert "Evaluation runs" not in page, "the list beside it is of the GenAI side"


@pytest.mark.slow
def test_where_a_server_shows_it_the_sweep_prints_its_address(
    ui: int, module_program: Program
) -> None:
    uri = f"tracking.uri=http://127.0.0.1:{ui}"
    done = module_program.call(
        *objective_words("declared"), "space={lr: {low: 0, high: 1}}", *TWO, uri
    )
    assert done.code == 0, done.stderr
    printed = re.search(r"^see it all: (http\S+)$", done.stdout, re.M)
    assert printed is not None, done.stdout
    experiment = experiment_of(ui, printed[1])
    assert experiment["name"] == "remote"
    assert view_of(experiment, printed[1])["orderByAsc"] is False
    shown = module_program.call("ui", "study.name=remote")
    assert printed[1] in shown.stdout
