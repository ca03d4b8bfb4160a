"""MLflow's calls inside a trial: what the sweep hears of them, and what the objective does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from automl.in_trial.trial_context import TrialContext, TrialPruned
from automl.tracking.inside.plugin import TRIAL_URI, open_registry
from automl.tracking.inside.process import InsideConfig, open_inside
from automl.tracking.inside.running_trials import LOG_ADDRESS_VARIABLE
from automl.tracking.inside.store import TrialStore
from automl.trial import FailedOutcome, InterruptedOutcome, PrunedOutcome, TrialEvent, Verdict
from tests.tracking.inside.conftest import Trainer, Trial


def logs(*values: float, metric: str = "val_loss") -> Callable[[TrialContext], None]:
    """An objective that logs these, by step."""

    def train(trial: TrialContext) -> None:
        import mlflow

        with mlflow.start_run():
            for step, value in enumerate(values):
                mlflow.log_metric(metric, value, step=step)

    return train


def test_the_studys_metric_is_reported_and_all_else_is_logged(trainer: Trainer) -> None:
    def train(trial: TrialContext) -> None:
        import mlflow

        mlflow.log_metrics({"val_loss": 0.5, "train_loss": 0.25}, step=3)
        mlflow.log_param("batch", 8)
        mlflow.set_tag("by", "ann")

    trial = trainer.run(train)
    assert trial.reports == [(3, {"val_loss": 0.5})]
    assert trial.points == [("train_loss", 3, 0.25)]
    assert (trial.params, trial.tags) == ({"batch": "8"}, {"by": "ann"})
    assert trial.value == 0.5


def test_a_value_that_prunes_ends_the_trial_out_of_mlflows_call(trainer: Trainer) -> None:
    after: list[int] = []

    def train(trial: TrialContext) -> None:
        logs(0.5, 0.75, 1.0)(trial)
        after.append(1)

    trial = trainer.run(train, trial=Trial(verdicts={1: Verdict.PRUNE}))
    assert [step for step, _ in trial.reports] == [0, 1]
    assert isinstance(trial.outcome, PrunedOutcome)
    assert after == []


def test_the_sweep_stops_a_trial_that_reports_nothing(trainer: Trainer) -> None:
    class Stopping(Trial):
        def __call__(self, event: TrialEvent) -> Verdict:
            super().__call__(event)
            return Verdict.STOP

    trial = trainer.run(logs(0.5, 0.75, metric="other"), trial=Stopping())
    assert isinstance(trial.outcome, InterruptedOutcome)
    assert trial.points == [("other", 0, 0.5)]


def test_another_thread_never_meets_the_verdict_and_the_trials_own_does(trainer: Trainer) -> None:
    met: list[str] = []

    def train(trial: TrialContext) -> None:
        import mlflow

        def log() -> None:
            try:
                mlflow.log_metric("val_loss", 0.5)
                met.append("nothing")
            except TrialPruned:
                met.append("pruned")

        thread = threading.Thread(target=log)
        thread.start()
        thread.join()
        try:
            mlflow.log_metric("other", 1.0)
        except TrialPruned:
            met.append("pruned, here")
            raise

    trial = trainer.run(train, trial=Trial(verdicts={0: Verdict.PRUNE}))
    assert met == ["nothing", "pruned, here"]
    assert isinstance(trial.outcome, PrunedOutcome)


def test_a_verdict_that_came_to_another_thread_at_last_prunes_all_the_same(
    trainer: Trainer,
) -> None:
    def train(trial: TrialContext) -> None:
        thread = threading.Thread(target=logs(0.5), args=(trial,))
        thread.start()
        thread.join()

    trial = trainer.run(train, trial=Trial(verdicts={0: Verdict.PRUNE}))
    assert isinstance(trial.outcome, PrunedOutcome)


def test_many_threads_lose_nothing(trainer: Trainer) -> None:
    def train(trial: TrialContext) -> float:
        import mlflow

        def log(n: int) -> None:
            for step in range(50):
                mlflow.log_metric(f"metric {n % 2}", float(step))

        threads = [threading.Thread(target=log, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 1.0

    points = trainer.run(train).points
    for name in ("metric 0", "metric 1"):
        assert sorted(step for n, step, _ in points if n == name) == list(range(100))


def test_what_is_logged_asynchronously_is_told_before_the_end(trainer: Trainer) -> None:
    def train(trial: TrialContext) -> None:
        import mlflow

        for step in range(20):
            mlflow.log_metric("val_loss", 20.0 - step, step=step, synchronous=False)

    assert trainer.run(train).value == 1.0


def test_trials_in_threads_of_one_process_keep_to_themselves(trainer: Trainer) -> None:
    both, addresses = threading.Barrier(2), list[str | None]()

    def train(trial: TrialContext) -> None:
        import mlflow

        with mlflow.start_run():
            both.wait()
            mlflow.log_metric("val_loss", float(trial.number))
            addresses.append(os.environ.get(LOG_ADDRESS_VARIABLE))
            both.wait()

    inside, trials = open_inside(InsideConfig()), [Trial(), Trial()]
    threads = [
        threading.Thread(
            target=lambda n=n: trainer.run(train, number=n, trial=trials[n], inside=inside)
        )
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [trial.value for trial in trials] == [0.0, 1.0]
    assert addresses == [None, None], "nobody could tell whose a process is that is started"


def test_a_run_that_is_left_open_is_not_the_next_trials(trainer: Trainer) -> None:
    ids: list[str] = []

    def train(trial: TrialContext) -> None:
        import mlflow

        ids.append(mlflow.start_run().info.run_id)
        mlflow.log_metric("val_loss", 0.5)

    assert trainer.run(train).value == 0.5
    assert trainer.run(train, number=1).value == 0.5
    assert len(set(ids)) == 2


@pytest.mark.parametrize("reports_first", [True, False])
def test_what_the_objective_reports_itself_is_no_second_report(
    trainer: Trainer, reports_first: bool
) -> None:
    def train(trial: TrialContext) -> None:
        import mlflow

        for epoch in range(3):
            value = 3.0 - epoch
            if reports_first:
                trial.report(epoch, {"val_loss": value})
            mlflow.log_metric("val_loss", value, step=epoch)
            if not reports_first:
                trial.report(epoch, {"val_loss": value})

    trial = trainer.run(train)
    assert trial.value == 1.0
    assert [step for step, _ in trial.reports] == [0, 1, 2]
    assert [value for _, _, value in trial.points] == ([] if reports_first else [2.0, 1.0])


def test_the_metric_that_was_never_logged_is_missed_and_those_that_were_are_named(
    trainer: Trainer,
) -> None:
    trial = trainer.run(logs(0.5, metric="loss"))
    assert isinstance(trial.outcome, FailedOutcome)
    assert trial.outcome.hopeless
    assert "study.metric=val_loss was never reported. Wanted: val_loss; reported: loss" in (
        trial.outcome.cause
    )


def test_a_run_is_called_as_its_tag_says(trainer: Trainer) -> None:
    names: list[str | None] = []

    def train(trial: TrialContext) -> float:
        import mlflow

        with mlflow.start_run(run_name="a") as run:
            mlflow.set_tag("mlflow.runName", "b")
            names.append(mlflow.get_run(run.info.run_id).info.run_name)
        return 1.0

    trainer.run(train)
    assert names == ["b"]


def test_artifacts_of_two_runs_stand_apart(trainer: Trainer) -> None:
    def train(trial: TrialContext) -> float:
        import mlflow

        for name in ("a", "b"):
            with mlflow.start_run(run_name=name):
                mlflow.log_text(name, "out/it.txt")
        return 1.0

    trainer.run(train)
    logged = trainer.folder / "trial-00000" / "artifacts"
    assert (logged / "out/it.txt").read_text() == "a"
    assert (logged / "b/out/it.txt").read_text() == "b"


def elsewhere(trial: TrialContext) -> None:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{trial.directory}/other.db")
    mlflow.set_experiment("theirs")
    logs(0.5)(trial)


def test_an_address_of_its_own_can_be_redirected(trainer: Trainer) -> None:
    trial = trainer.run(elsewhere, inside=open_inside(InsideConfig(redirect=True)))
    assert trial.value == 0.5
    assert not (trainer.folder / "trial-00000/other.db").exists()


def test_after_the_trials_mlflow_is_as_it_was(
    folder: Path, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    monkeypatch.setenv("MLFLOW_RUN_ID", "of-the-shell")
    trial = trainer.run(elsewhere, inside=open_inside(InsideConfig(redirect=True)))
    assert trial.value == 0.5
    assert os.environ["MLFLOW_TRACKING_URI"] == f"sqlite:///{folder}/mlflow.db"
    assert os.environ["MLFLOW_RUN_ID"] == "of-the-shell"
    monkeypatch.delenv("MLFLOW_RUN_ID")
    assert not isinstance(mlflow.tracking.MlflowClient()._tracking_client.store, TrialStore)
    with mlflow.start_run() as run:
        mlflow.log_metric("a", 1.0)
    assert mlflow.MlflowClient().get_run(run.info.run_id).data.metrics == {"a": 1.0}
    monkeypatch.delenv("MLFLOW_TRACKING_URI")


def test_where_no_trial_runs_the_remedy_is_said(trainer: Trainer) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match="no trial runs in this process: log in the process"):
        MlflowClient(TRIAL_URI).create_run("0")


def test_no_model_is_registered_by_a_trial() -> None:
    from mlflow.exceptions import MlflowException

    with pytest.raises(MlflowException, match="without registered_model_name"):
        open_registry(TRIAL_URI)
