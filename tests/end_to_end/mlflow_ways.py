"""Ways in which training code uses MLflow, one for each trial; none knows of automl."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import mlflow
import numpy as np
from mlflow.exceptions import MlflowException
from sklearn.linear_model import LinearRegression, LogisticRegression

mlflow.set_experiment("of the module")


def one_run(lr: float) -> None:
    with mlflow.start_run():
        mlflow.log_params({"batch": 32, "lr": "0.010"})
        for epoch in range(3):
            mlflow.log_metrics({"val_loss": 3.0 - epoch, "train_loss": 2.0 - epoch}, step=epoch)
        mlflow.set_tags({"by": "ann", "mlflow.note.content": "a try"})
        mlflow.log_text("all of it", "notes/it.txt")


def two_in_sequence(lr: float) -> None:
    for name in ("pretrain", "finetune"):
        with mlflow.start_run(run_name=name):
            mlflow.log_params({"stage": name, "batch": 8})
            for epoch in range(2):
                mlflow.log_metric("val_loss", 1.0 + epoch, step=epoch)
            mlflow.log_text(name, "it.txt")


def nested(lr: float) -> None:
    with mlflow.start_run():
        for fold in range(2):
            with mlflow.start_run(run_name=f"fold-{fold}", nested=True):
                mlflow.log_param("fold", fold)
                mlflow.log_metric("fold_loss", 0.5 + fold)
        mlflow.log_metric("val_loss", 1.0)


def bare(lr: float) -> None:
    for value in (3.0, 2.0, 2.0):
        mlflow.log_metric("val_loss", value)
        mlflow.log_metric("other", value)


def own_experiment(lr: float) -> None:
    mlflow.set_experiment("mine")
    with mlflow.start_run():
        mlflow.log_metric("val_loss", 1.0)


def own_address(lr: float) -> float:
    mlflow.set_tracking_uri("sqlite:///other.db")
    with mlflow.start_run(experiment_id="0"):
        mlflow.log_metric("val_loss", 1.0)
    return 1.5


def params_again(lr: float) -> None:
    with mlflow.start_run():
        mlflow.log_param("lr", lr)
        mlflow.log_param("lr", lr)
        with suppress(MlflowException):  # MLflow refuses it, in one run
            mlflow.log_param("lr", 7)
        mlflow.log_metric("val_loss", 1.0)
    with mlflow.start_run():
        mlflow.log_param("lr", 2 * lr)


def raised_and_caught(lr: float) -> None:
    try:
        with mlflow.start_run():
            mlflow.log_metric("val_loss", 1.0)
            raise ValueError("inside of the run")
    except ValueError:
        mlflow.log_metric("after", 1.0)


def raised(lr: float) -> None:
    with mlflow.start_run():
        mlflow.log_metric("val_loss", 1.0)
        raise ValueError("inside of the run")


def by_client(lr: float) -> None:
    client = mlflow.MlflowClient()
    run = client.create_run("0", tags={"made": "by hand"})
    client.log_metric(run.info.run_id, "val_loss", 1.0, step=4)
    client.set_terminated(run.info.run_id, "KILLED")
    assert client.get_run(run.info.run_id).data.metrics == {"val_loss": 1.0}
    assert client.get_run(run.info.run_id).info.status == "KILLED"


def in_a_thread(lr: float) -> None:
    thread = threading.Thread(target=lambda: mlflow.log_metric("val_loss", 1.0))
    thread.start()
    thread.join()


def left_open(lr: float) -> None:
    """The next trial of its process is not to write into this run."""
    mlflow.start_run(run_name="left open")
    mlflow.log_metric("val_loss", 1.0)


def reads_back(lr: float) -> float:
    with mlflow.start_run() as run:
        mlflow.log_param("batch", 8)
        for epoch in range(3):
            mlflow.log_metric("val_loss", 3.0 - epoch, step=epoch)
        found = mlflow.search_runs(filter_string="params.batch = '8'")
        assert list(found.run_id) == [run.info.run_id]
        history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "val_loss")
        return min(point.value for point in history)


def autolog(lr: float) -> None:
    mlflow.sklearn.autolog(log_models=False)
    try:
        LogisticRegression(C=7.0).fit(np.eye(4), np.array([0, 1, 0, 1]))
    finally:
        mlflow.sklearn.autolog(disable=True)
    mlflow.log_metric("val_loss", 1.0)


def logged_model(lr: float) -> None:
    model = LinearRegression().fit(np.eye(3), np.arange(3))
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(model, name="line", pip_requirements=["scikit-learn"])
        mlflow.log_metric("val_loss", 1.0)
    again = mlflow.sklearn.load_model(info.model_uri)
    assert np.allclose(again.predict(np.eye(3)), model.predict(np.eye(3)))


def train(way: str, lr: float) -> float | None:
    """What `way` returns. No program has started a second MLflow store in the folder."""
    assert os.environ["MLFLOW_TRACKING_URI"].startswith("automl:")
    return globals()[way](lr)  # type: ignore[no-any-return]
