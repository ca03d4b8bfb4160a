"""Events to runs on a real MLflow store: a study is shown as it went, odd values and all."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

from automl.config import TrackingConfig
from automl.tracking.deliver.artifacts import place_file
from automl.tracking.deliver.study_delivery import MAX_SINGLE_SEARCHES
from automl.tracking.mlflow_store import NotDeliveredError, study_runs_address
from automl.tracking.tracking_uri import resolve_uri
from automl.trial import CheckpointKind, FailedOutcome, MetricsReported, PrunedOutcome, TrialStarted
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver, delivery
from tests.tracking.scenes import (
    BEGUN,
    NAME,
    UUID,
    begin,
    finish,
    interrupt,
    report,
    sweep_ended,
    sweep_started,
    trial,
    write,
    write_checkpoint,
)


def test_a_study_is_shown_as_it_went(study: Path, shown: Shown) -> None:
    checkpoints = [write_checkpoint(study, 0, kind) for kind in CheckpointKind]
    pruned = PrunedOutcome(1, BEGUN + 2, step=1, value=1.5)
    failed = FailedOutcome(2, BEGUN + 3, cause="ValueError: x", details="Traceback …")
    write(
        study,
        sweep_started(),
        *[begin(0), report(0, 0), report(0, 1), *checkpoints, finish(0)],
        *trial(1, 2, pruned),
        *trial(2, 0, failed),
        *trial(3, 1, interrupt(3)),
        *[begin(4), report(4, 0)],
        sweep_ended(1),
    )
    assert deliver(study) == []
    statuses = {run.info.run_name: run.info.status for run in shown.runs()}
    assert statuses == {
        NAME: "FINISHED",
        "trial-00000": "FINISHED",
        "trial-00001": "KILLED",
        "trial-00002": "FAILED",
        "trial-00003": "SCHEDULED",
        "trial-00004": "RUNNING",
    }
    parent, first = shown.run(NAME), shown.run("trial-00000")
    assert parent.data.params == {}
    assert parent.data.metrics == {"trials_finished": 1, "trials_failed": 0, "best_value": 0.25}
    assert (parent.info.start_time, parent.info.end_time) == (BEGUN * 1000, (BEGUN + 900) * 1000)
    assert first.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert first.data.tags["automl.study"] == UUID
    assert first.data.tags["automl.device"] == "cpu"
    assert first.data.params == {"lr": "0.1", "depth": "0"}
    assert (first.info.start_time, first.info.end_time) == (BEGUN * 1000, (BEGUN + 0.5) * 1000)
    assert shown.history("trial-00000", "val_loss") == [
        (0, int(BEGUN * 1000), 0.0),
        (1, int(BEGUN * 1000) + 10, 0.2),
    ]
    assert first.data.metrics["value"] == 0.25
    assert shown.artifacts("trial-00000") == {"last.pt": b"last of 0", "best.pt": b"best of 0"}
    assert shown.run("trial-00002").data.tags["automl.cause"] == "ValueError: x"


def test_a_study_of_an_earlier_version_goes_on_in_its_run(study: Path, shown: Shown) -> None:
    """Its run has the settings as params; they stay, and what changes is told as ever."""
    experiment = shown.client.create_experiment(NAME)
    key = {"automl.study": UUID, "automl.kind": "study"}
    older = shown.client.create_run(experiment, tags=key, run_name=NAME).info.run_id
    shown.client.log_param(older, "n", "1")
    settings = {"study.direction": "maximize", "space.lr.low": "0.1"}
    write(study, sweep_started(n="1", **settings), *trial(0), sweep_started(n="2", **settings))
    assert deliver(study) == []
    parent = shown.run(NAME)
    assert (parent.info.run_id, parent.data.params) == (older, {"n": "1"})
    assert parent.data.tags["automl.changed.n"] == "2"
    view = shown.client.get_experiment(experiment).tags["mlflow.sharedViewState.automl"]
    assert json.loads(json.loads(view)["state"])["orderByAsc"] is False
    assert "params.`lr`" in json.loads(json.loads(view)["state"])["selectedColumns"]


def test_the_view_has_the_params_of_the_best_trials_once_a_sweep_has_ended(
    study: Path, shown: Shown
) -> None:
    def params() -> list[str]:
        experiment = shown.run(NAME).info.experiment_id
        view = shown.client.get_experiment(experiment).tags["mlflow.sharedViewState.automl"]
        columns = json.loads(json.loads(view)["state"])["selectedColumns"]
        return [column for column in columns if column.startswith("params.")]

    write(study, sweep_started(**{"space.width.low": "1", "space.depth": "3"}))
    deliver(study)
    first = params()
    write(study, *trial(0), sweep_ended(1))
    deliver(study)
    assert (first, params()) == (["params.`width`"], ["params.`lr`"])


def test_a_study_is_found_by_its_run_in_whatever_store(study: Path, folder: Path) -> None:
    def found(database: str) -> str | None:
        uri = resolve_uri(TrackingConfig(uri=f"sqlite:///{folder / database}"))
        return study_runs_address(uri, study / "events.log")

    shutil.copyfile(folder / "mlflow.db", folder / "other.db")
    assert found("mlflow.db") is None
    Shown(f"sqlite:///{folder / 'mlflow.db'}").client.create_experiment("another")
    for name in ("theirs", "of the same number"):
        Shown(f"sqlite:///{folder / 'other.db'}").client.create_experiment(name)
    write(study, sweep_started(**{"study.direction": "maximize"}), *trial(0))
    deliver(study)
    view = "viewStateShareKey=automl"
    assert found("mlflow.db") == f"#/experiments/2/runs?{view}&workflowType=machine_learning"
    assert found("other.db") is None
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    client.delete_experiment_tag("2", "mlflow.sharedViewState.automl")
    order = "orderByKey=metrics.%60value%60&orderByAsc=false"
    assert found("mlflow.db") == f"#/experiments/2/runs?{order}&workflowType=machine_learning"


def test_a_view_that_cannot_be_shared_hinders_nothing(study: Path, shown: Shown) -> None:
    class Refusing(MlflowClient):
        def set_experiment_tag(self, experiment_id: str, key: str, value: object) -> None:
            asked.append(key)
            raise MlflowException("not yours", error_code=PERMISSION_DENIED)

    asked: list[str] = []
    write(study, sweep_started(), *trial(0))
    assert deliver(study, Refusing(f"sqlite:///{study.parents[1] / 'mlflow.db'}")) == []
    assert shown.run("trial-00000").info.status == "FINISHED"
    assert asked == ["mlflow.sharedViewState.automl"]


def test_the_config_of_each_sweep_is_an_artifact_and_a_link_is_not_followed(
    study: Path, shown: Shown
) -> None:
    def stored() -> list[str]:
        run_id = shown.run(NAME).info.run_id
        paths = [info.path for info in shown.client.list_artifacts(run_id)]
        return [Path(shown.client.download_artifacts(run_id, path)).read_text() for path in paths]

    (study / "config.yaml").write_text("a: 1\n")
    write(study, sweep_started(a="1"), *trial(0), sweep_ended(1))
    assert deliver(study) == []
    assert stored() == ["a: 1\n"]
    (study / "beside").write_text("a: 2\n")
    (study / "beside").rename(study / "config.yaml")
    write(study, sweep_started(a="2"))
    deliver(study)
    assert stored() == ["a: 2\n"]
    (study / "secret").write_text("hunter2")
    (study / "config.yaml").unlink()
    (study / "config.yaml").symlink_to(study / "secret")
    write(study, sweep_started(a="3"))
    assert deliver(study) == []
    assert stored() == ["a: 2\n"]


def test_a_trial_that_goes_on_stays_one_run(study: Path, shown: Shown) -> None:
    write(study, sweep_started(n="1"), begin(0), report(0, 0), interrupt(0))
    deliver(study)
    before = shown.run("trial-00000")
    write(study, sweep_started(n="2"), begin(0), report(0, 0), report(0, 1))
    deliver(study)
    during = shown.run("trial-00000")
    assert (during.info.run_id, during.info.status) == (before.info.run_id, "RUNNING")
    assert shown.run(NAME).data.tags["automl.changed.n"] == "2"
    write(study, finish(0), sweep_ended(1))
    deliver(study)
    after = shown.run("trial-00000")
    assert (after.info.run_id, after.info.status) == (before.info.run_id, "FINISHED")
    assert after.data.tags["automl.cause"] == ""
    assert [step for step, _, _ in shown.history("trial-00000", "val_loss")] == [0, 1]
    assert len(shown.runs()) == 2


def test_delivering_again_from_the_start_changes_nothing(study: Path, shown: Shown) -> None:
    events = [event for n in range(3) for event in trial(n)]
    write(study, sweep_started(), *events, sweep_ended(3))
    deliver(study)
    before = {run.info.run_id: run.to_dictionary() for run in shown.runs()}
    history = shown.history("trial-00001", "val_loss")
    (study / "events.delivered").unlink()
    deliver(study)
    assert {run.info.run_id: run.to_dictionary() for run in shown.runs()} == before
    assert shown.history("trial-00001", "val_loss") == history


def test_many_trials_in_doubt_are_looked_for_at_once(study: Path, shown: Shown) -> None:
    n = MAX_SINGLE_SEARCHES + 5
    write(study, sweep_started(), *(begin(number) for number in range(n)))
    deliver(study)
    (study / "events.delivered").unlink()
    write(study, begin(n))
    deliver(study)
    names = Counter(run.info.run_name for run in shown.runs())
    assert names == {NAME: 1, **{f"trial-{number:05d}": 1 for number in range(n + 1)}}


def test_odd_values_are_taken(study: Path, shown: Shown) -> None:
    odd = {"acc@5": 0.5, "nan": math.nan, "inf": math.inf}
    write(
        study,
        sweep_started(**{f"setting.{n}": "x" for n in range(250)}),
        TrialStarted(0, BEGUN, params={"a b(c)": "y" * 9000, "none": None}, device="cpu"),
        *(MetricsReported(0, BEGUN + step, step, odd) for step in range(800)),
        finish(0),
    )
    assert deliver(study) == []
    run = shown.run("trial-00000")
    assert run.data.params["none"] == "None"
    assert run.data.params["a b_c_"].endswith("[cut, 9000 characters]")
    assert len(shown.history("trial-00000", "acc_5")) == 800
    assert all(math.isnan(value) for _, _, value in shown.history("trial-00000", "inf"))
    assert shown.run(NAME).data.params == {}


def test_a_refused_value_costs_only_itself(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), begin(0))
    deliver(study)
    shown.client.log_param(shown.run("trial-00000").info.run_id, "late", "by hand")
    again = TrialStarted(0, BEGUN + 1, params={"lr": 0.1, "late": "by us"}, device="cpu")
    write(study, interrupt(0), again, report(0, 0), finish(0))
    (refusal,) = deliver(study)
    assert "late" in refusal
    run = shown.run("trial-00000")
    assert run.info.status == "FINISHED"
    assert run.data.params["late"] == "by hand"
    assert run.data.metrics["val_loss"] == 0.0


def test_what_the_store_can_never_hold_costs_only_itself(study: Path, shown: Shown) -> None:
    """SQLite's integers end at 2**63; MLflow calls that an internal error."""
    late = MetricsReported(0, BEGUN + 0.2, 2**63, {"train_loss": 3.0, "val_loss": 4.0})
    write(study, sweep_started(), begin(0), report(0, 1), late, finish(0), sweep_ended(1))
    refusals = deliver(study)
    assert len(refusals) == 2
    run = shown.run("trial-00000")
    assert (run.info.status, shown.run(NAME).info.status) == ("FINISHED", "FINISHED")
    assert run.data.metrics == {"train_loss": 0.1, "val_loss": 0.2, "value": 0.25}
    assert "val_loss at step 9223372036854775808: " in run.data.tags["automl.refused"]
    assert "too large" in run.data.tags["automl.refused"]
    assert deliver(study) == [], "what is delivered is not offered again"


def test_a_cause_that_is_no_text_is_told_as_far_as_it_is(study: Path, shown: Shown) -> None:
    write(
        study, sweep_started(), begin(0), FailedOutcome(0, BEGUN + 1, "no file a\ud800b", "x\udcff")
    )
    assert deliver(study) == []
    run = shown.run("trial-00000")
    assert run.info.status == "FAILED"
    assert run.data.tags["automl.cause"] == "no file a\N{REPLACEMENT CHARACTER}b"


def test_a_checkpoint_that_is_gone_is_told(study: Path, shown: Shown) -> None:
    checkpoint = write_checkpoint(study, 0, CheckpointKind.BEST)
    Path(checkpoint.path).unlink()
    write(study, sweep_started(), begin(0), checkpoint, finish(0))
    (refusal,) = deliver(study)
    assert "best.pt" in refusal
    assert shown.run("trial-00000").info.status == "FINISHED"


def test_what_is_delivered_is_on_disk_first(
    study: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep may not have flushed it yet, and a power cut would leave MLflow knowing more."""
    flushed: list[tuple[int, int]] = []
    to_disk = os.fdatasync

    def noticing(fd: int) -> None:
        to_disk(fd)
        flushed.append((os.fstat(fd).st_ino, os.fstat(fd).st_size))

    write(study, sweep_started(), begin(0), finish(0))
    log = (study / "events.log").stat()
    with delivery(study) as delivering:
        monkeypatch.setattr(os, "fdatasync", noticing)
        delivering.read()
        assert flushed == [(log.st_ino, log.st_size)]
        delivering.deliver()
    assert shown.run("trial-00000").info.status == "FINISHED"


def test_what_waits_is_not_confirmed(study: Path, shown: Shown) -> None:
    """A young trial may wait; whoever delivers after a kill begins with it."""
    young = TrialStarted(0, time.time(), params={"lr": 0.1}, device="cpu")
    write(study, sweep_started(), young, *trial(1))
    with delivery(study) as delivering:
        delivering.read()
        delivering.deliver(everything=False)
    assert {run.info.run_name for run in shown.runs()} == {NAME, "trial-00001"}
    deliver(study)
    assert shown.run("trial-00000").data.params == {"lr": "0.1"}


class RestoresTwice(MlflowClient):
    """A client whose request to restore an experiment arrives twice."""

    def restore_experiment(self, experiment_id: str) -> None:
        super().restore_experiment(experiment_id)
        super().restore_experiment(experiment_id)


@pytest.mark.parametrize("client", [MlflowClient, RestoresTwice])
def test_an_experiment_deleted_in_the_ui_is_restored(
    study: Path, shown: Shown, client: type[MlflowClient]
) -> None:
    write(study, sweep_started(), begin(0))
    with delivery(study, client=client(shown.client.tracking_uri)) as delivering:
        delivering.read()
        delivering.deliver()
        shown.client.delete_experiment(shown.run(NAME).info.experiment_id)
        write(study, *trial(1), report(0, 0), finish(0))
        delivering.read()
        delivering.deliver()
    assert Counter(run.info.status for run in shown.runs()) == {"FINISHED": 2, "RUNNING": 1}
    shown.client.delete_experiment(shown.run(NAME).info.experiment_id)
    write(study, sweep_started(), *trial(2))
    deliver(study)
    assert len(shown.runs()) == 4


def test_a_run_deleted_in_the_ui_comes_back_when_its_trial_goes_on(
    study: Path, shown: Shown
) -> None:
    write(study, sweep_started(), begin(0), interrupt(0))
    deliver(study)
    shown.client.delete_run(shown.run("trial-00000").info.run_id)
    write(study, begin(0), report(0, 0), finish(0))
    deliver(study)
    assert shown.run("trial-00000").info.status == "FINISHED"
    assert len(shown.runs()) == 2


def test_another_store_gets_the_whole_study(
    study: Path, shown: Shown, empty_database: Path, folder: Path
) -> None:
    write(study, sweep_started(), *trial(0), begin(1))
    deliver(study)
    other = folder / "other.db"
    other.write_bytes(empty_database.read_bytes())
    write(study, finish(1))
    with delivery(study, database="other.db") as delivering:
        delivering.read()
        with pytest.raises(NotDeliveredError, match="vanished"):
            delivering.deliver()
        delivering.read()
        delivering.deliver()
    names = {run.info.run_name for run in Shown(f"sqlite:///{other}").runs()}
    assert names == {NAME, "trial-00000", "trial-00001"}
    assert Shown(f"sqlite:///{other}").history("trial-00000", "val_loss")
    assert shown.run("trial-00001").info.status == "RUNNING"


def test_a_file_is_placed_whole_over_an_older_one(tmp_path: Path) -> None:
    source, folder = tmp_path / "last.pt", tmp_path / "store" / "checkpoints"
    for content in (b"one", b"two"):
        beside = tmp_path / "beside"
        beside.write_bytes(content)
        beside.rename(source)  # as checkpoints are written
        place_file(source, folder)
        assert [path.name for path in folder.iterdir()] == ["last.pt"]
        assert (folder / "last.pt").read_bytes() == content
