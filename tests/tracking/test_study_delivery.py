"""Events to runs on a real MLflow store: exact after kills, lost answers and lost stores."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

from automl.config import KeepCheckpoints, TrackingConfig
from automl.tracking.address import find_runs
from automl.tracking.confirmed import Confirmed
from automl.tracking.mlflow import MlflowRuns, NotTakenError, place_file
from automl.tracking.run_update import StudyRef
from automl.tracking.store import open_client
from automl.tracking.study_delivery import MAX_SINGLE_SEARCHES, StudyDelivery
from automl.tracking.uri import TrackingUri, resolve_uri
from automl.trial import CheckpointKind, Failed, Pruned, Reported, Started, SweepStarted
from tests.flips import unsealed
from tests.tracking.conftest import Shown
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


@contextmanager
def delivery(
    study: Path,
    *,
    client: MlflowClient | None = None,
    refusals: list[str] | None = None,
    database: str = "mlflow.db",
    fresh_from: int | None = None,
    ref: StudyRef | None = None,
) -> Iterator[StudyDelivery]:
    """A delivery as the process has it, in this process."""
    uri = resolve_uri(TrackingConfig(uri=f"sqlite:///{study.parents[1] / database}"))
    confirmed = Confirmed.open(study / "events.log", wait_seconds=0.0)
    refused = ([] if refusals is None else refusals).append
    runs = MlflowRuns(client or open_client(uri), uri, refused)
    try:
        log, keep = study / "events.log", KeepCheckpoints.all
        yield StudyDelivery(log, confirmed, runs, keep, fresh_from, ref)
    finally:
        confirmed.close()


def deliver(
    study: Path, client: MlflowClient | None = None, ref: StudyRef | None = None
) -> list[str]:
    """Deliver what is in the log; returns what MLflow refused."""
    refusals: list[str] = []
    with delivery(study, client=client, refusals=refusals, ref=ref) as delivering:
        delivering.read()
        delivering.deliver()
    return refusals


def test_a_study_is_shown_as_it_went(study: Path, shown: Shown) -> None:
    checkpoints = [write_checkpoint(study, 0, kind) for kind in CheckpointKind]
    pruned = Pruned(1, BEGUN + 2, step=1, value=1.5)
    failed = Failed(2, BEGUN + 3, cause="ValueError: x", details="Traceback …")
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


def test_a_study_is_found_by_its_run_in_whatever_store(study: Path, folder: Path) -> None:
    def found(database: str) -> str | None:
        uri = resolve_uri(TrackingConfig(uri=f"sqlite:///{folder / database}"))
        return find_runs(uri, study / "events.log")

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
        Started(0, BEGUN, params={"a b(c)": "y" * 9000, "none": None}, device="cpu"),
        *(Reported(0, BEGUN + step, step, odd) for step in range(800)),
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
    again = Started(0, BEGUN + 1, params={"lr": 0.1, "late": "by us"}, device="cpu")
    write(study, interrupt(0), again, report(0, 0), finish(0))
    (refusal,) = deliver(study)
    assert "late" in refusal
    run = shown.run("trial-00000")
    assert run.info.status == "FINISHED"
    assert run.data.params["late"] == "by hand"
    assert run.data.metrics["val_loss"] == 0.0


def test_what_the_store_can_never_hold_costs_only_itself(study: Path, shown: Shown) -> None:
    """SQLite's integers end at 2**63; MLflow calls that an internal error."""
    late = Reported(0, BEGUN + 0.2, 2**63, {"train_loss": 3.0, "val_loss": 4.0})
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
    write(study, sweep_started(), begin(0), Failed(0, BEGUN + 1, "no file a\ud800b", "x\udcff"))
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
    young = Started(0, time.time(), params={"lr": 0.1}, device="cpu")
    write(study, sweep_started(), young, *trial(1))
    with delivery(study) as delivering:
        delivering.read()
        delivering.deliver(everything=False)
    assert {run.info.run_name for run in shown.runs()} == {NAME, "trial-00001"}
    deliver(study)
    assert shown.run("trial-00000").data.params == {"lr": "0.1"}


def test_an_experiment_deleted_in_the_ui_is_restored(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), begin(0))
    with delivery(study) as delivering:
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
        with pytest.raises(NotTakenError, match="vanished"):
            delivering.deliver()
        delivering.read()
        delivering.deliver()
    names = {run.info.run_name for run in Shown(f"sqlite:///{other}").runs()}
    assert names == {NAME, "trial-00000", "trial-00001"}
    assert Shown(f"sqlite:///{other}").history("trial-00000", "val_loss")
    assert shown.run("trial-00001").info.status == "RUNNING"


RENAMED = StudyRef(UUID, "calm-lynx", ("before", NAME))
COPY = StudyRef("of-the-copy", "calm-lynx")


def names_of(shown: Shown) -> dict[str, str]:
    """Name by id of every experiment but MLflow's own."""
    found = shown.client.search_experiments()
    return {e.experiment_id: e.name for e in found if e.name != "Default"}


def whose(shown: Shown) -> Counter[tuple[str, str, str]]:
    """(experiment, study uuid, name) of all runs."""
    return Counter(
        (name, run.data.tags["automl.study"], str(run.info.run_name))
        for experiment, name in names_of(shown).items()
        for run in shown.client.search_runs([experiment])
    )


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_renamed_study_takes_its_experiment_with_it(
    study: Path, shown: Shown, forgotten: bool
) -> None:
    write(study, sweep_started(), *trial(0))
    deliver(study)
    (experiment,) = names_of(shown)
    if forgotten:  # what MLflow has is looked up: it changes nothing there
        (study / "events.delivered").unlink()
    write(study, sweep_started(), *trial(1))
    deliver(study, ref=RENAMED)
    assert names_of(shown) == {experiment: "calm-lynx"}
    assert set(whose(shown).values()) == {1}
    assert len(whose(shown)) == 3


@pytest.mark.parametrize("name", ["by hand", NAME])
def test_an_experiment_keeps_a_name_that_is_not_the_studys_alone(
    study: Path, shown: Shown, name: str
) -> None:
    write(study, sweep_started(), *trial(0))
    deliver(study)
    (experiment,) = names_of(shown)
    if name == NAME:
        shown.client.create_run(
            experiment, tags={"automl.study": "another", "automl.kind": "study"}
        )
    else:
        shown.client.rename_experiment(experiment, name)
    write(study, sweep_started(), *trial(1))
    deliver(study, ref=RENAMED)
    assert names_of(shown) == {experiment: name}


def test_a_name_that_another_experiment_has_is_left_to_it(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    deliver(study)
    (experiment,) = names_of(shown)
    other = shown.client.create_experiment("calm-lynx")
    write(study, sweep_started(), *trial(1))
    deliver(study, ref=RENAMED)
    assert names_of(shown) == {experiment: NAME, other: "calm-lynx"}
    assert len(shown.runs()) == 3


@pytest.mark.parametrize("older_version", [False, True])
def test_a_copy_gets_all_trials_as_runs_of_its_own(
    study: Path, shown: Shown, older_version: bool
) -> None:
    write(study, sweep_started(), *trial(0), *trial(1, 1, interrupt(1)))
    deliver(study)
    before = {run.info.run_id: run.to_dictionary() for run in shown.runs()}
    delivered = study / "events.delivered"
    if older_version:
        said = unsealed(delivered.read_bytes())
        delivered.write_bytes(said.replace(f'"study": "{UUID}", '.encode(), b""))
    write(study, begin(1), finish(1))  # what only the copy knows
    with delivery(study, ref=COPY) as delivering:
        delivering.read()
        if older_version:
            with pytest.raises(NotTakenError, match="vanished"):
                delivering.deliver()
            delivering.read()
        delivering.deliver()
    assert {run.info.run_id: run.to_dictionary() for run in shown.runs()} == before
    runs = [NAME, "trial-00000", "trial-00001"]
    own = ["calm-lynx", *runs[1:]]
    expected = [(NAME, UUID, run) for run in runs]
    expected += [("calm-lynx", COPY.uuid, run) for run in own]
    assert whose(shown) == Counter(expected)


def test_a_log_of_two_studies_is_the_last_ones(study: Path, shown: Shown) -> None:
    """As `sync` finds it where a copy's place was lost."""
    write(study, sweep_started(), *trial(0))
    deliver(study)
    write(study, SweepStarted(BEGUN, NAME, "of-the-copy", {}), *trial(1))
    deliver(study)
    assert Counter(uuid for _, uuid, _ in whose(shown)) == {UUID: 2, "of-the-copy": 3}


class AnswerIsLost(MlflowClient):
    """A client whose server does what it is asked, and whose answer to a create is lost."""

    n_lost = 0

    def create_run(self, *args: object, **kwargs: object) -> Run:
        run = super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        if self.n_lost < 2:
            self.n_lost += 1
            raise MlflowException("API request failed with timeout exception")
        return run


def test_a_create_whose_answer_is_lost_is_not_repeated(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    client = AnswerIsLost(shown.client.tracking_uri)
    with delivery(study, client=client) as delivering:
        delivering.read()
        for _ in range(2):
            with pytest.raises(NotTakenError, match="timeout"):
                delivering.deliver()
        delivering.deliver()
    assert client.n_lost == 2
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, "trial-00000"]
    assert shown.run("trial-00000").data.metrics["value"] == 0.25
    assert "minimizes" in shown.run(NAME).data.tags["mlflow.note.content"]


def test_a_new_trials_create_whose_answer_is_lost_is_looked_for(study: Path, shown: Shown) -> None:
    """A run of a trial that begins now cannot be there; after that create it may be."""
    client = AnswerIsLost(shown.client.tracking_uri)
    write(study, sweep_started())
    with delivery(study, client=client) as delivering:
        write(study, begin(0), report(0, 0))
        delivering.read()
        for _ in range(2):
            with pytest.raises(NotTakenError, match="timeout"):
                delivering.deliver()
        delivering.deliver()
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, "trial-00000"]


class KilledError(BaseException):
    """Stands for the end of the process at that point."""


class DiesAfterCreate(MlflowClient):
    """A client whose process is killed when the run is made and nobody has noted it."""

    def create_run(self, *args: object, **kwargs: object) -> Run:
        super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        raise KilledError


def test_a_run_that_nobody_noted_is_found_again(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0), *trial(1))
    for _ in range(3):  # once for the study's own run, once for each trial
        with pytest.raises(KilledError):
            deliver(study, DiesAfterCreate(shown.client.tracking_uri))
    deliver(study)
    names = sorted(run.info.run_name for run in shown.runs())
    assert names == [NAME, "trial-00000", "trial-00001"]
    assert shown.run("trial-00001").data.metrics["value"] == 1.25


class FailsOverLoss(MlflowClient):
    """A client whose store fails by itself over one metric, `n` times, or over all it is given."""

    def __init__(self, uri: str, n: int, *, over_all: bool = False) -> None:
        super().__init__(uri)
        self.n_left, self._over_all = n, over_all

    def log_batch(
        self, run_id: str, metrics: Sequence[Metric] = (), *args: Any, **kwargs: Any
    ) -> Any:
        if self.n_left and (self._over_all or any(metric.key == "val_loss" for metric in metrics)):
            self.n_left -= 1
            raise MlflowException("the disk has a bad day")  # an internal error
        return super().log_batch(run_id, metrics, *args, **kwargs)


@pytest.mark.parametrize("n_failures", [1, 2, 3, 4])
def test_a_value_that_is_taken_in_the_end_is_not_given_up(
    study: Path, shown: Shown, n_failures: int
) -> None:
    write(study, sweep_started(), begin(0), report(0, 0), finish(0))
    client = FailsOverLoss(shown.client.tracking_uri, n_failures)
    assert deliver(study, client) == []
    assert client.n_left == 0
    assert shown.run("trial-00000").data.metrics["val_loss"] == 0.0


def test_a_store_that_fails_over_everything_has_refused_nothing(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    refusals: list[str] = []
    client = FailsOverLoss(shown.client.tracking_uri, 1000, over_all=True)
    with delivery(study, client=client, refusals=refusals) as delivering:
        delivering.read()
        with pytest.raises(NotTakenError, match="bad day"):
            delivering.deliver()
        client.n_left = 0
        delivering.deliver()
    assert refusals == []
    assert shown.history("trial-00000", "val_loss")


class Doubles(MlflowClient):
    """A client whose creates arrive twice, and whose first search for doubles fails."""

    n_failures = 0

    def create_run(self, *args: object, **kwargs: object) -> Run:
        super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        return super().create_run(*args, **kwargs)  # type: ignore[arg-type]

    def search_runs(self, *args: Any, **kwargs: Any) -> Any:
        if "RUNNING" in args[1] and self.n_failures == 0:
            self.n_failures += 1
            raise MlflowException("API request failed with timeout exception")
        return super().search_runs(*args, **kwargs)


def test_doubles_are_looked_for_until_the_server_answers(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0), begin(1), interrupt(1), begin(2))
    client = Doubles(shown.client.tracking_uri)
    server = TrackingUri("http://host:5000", "tracking.uri")
    confirmed = Confirmed.open(study / "events.log", wait_seconds=0.0)
    runs = MlflowRuns(client, server, print)
    delivering = StudyDelivery(study / "events.log", confirmed, runs, KeepCheckpoints.all)
    delivering.read()
    with pytest.raises(NotTakenError):
        delivering.deliver()
    assert delivering.offset == 0, "nothing is confirmed: a new process would look again"
    delivering.deliver()
    confirmed.close()
    assert delivering.offset > 0
    names = sorted(run.info.run_name for run in shown.runs())
    assert names == [NAME, "trial-00000", "trial-00001", "trial-00002"]
    assert shown.run("trial-00002").data.params["depth"] == "2", "the one that is written to"


class AnswerIsLate(MlflowClient):
    """A client whose server makes the run only after the client gave up and tried again."""

    late: tuple[object, ...] | None = None

    def create_run(self, *args: object, **kwargs: object) -> Run:
        if kwargs.get("run_name") == "trial-00000" and self.late is None:
            self.late = args
            raise MlflowException("API request failed with timeout exception")
        run = super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        if kwargs.get("run_name") == "trial-00000":
            super().create_run(*args, **kwargs)  # type: ignore[arg-type]
        return run


def test_a_double_that_a_late_server_made_is_deleted(study: Path, shown: Shown) -> None:
    write(study, sweep_started(), *trial(0))
    with delivery(study, client=AnswerIsLate(shown.client.tracking_uri)) as delivering:
        delivering.read()
        with pytest.raises(NotTakenError):
            delivering.deliver()
        delivering.deliver()
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, "trial-00000"]
    assert shown.run("trial-00000").info.status == "FINISHED"


KILLS = """
import os, random, signal, sys, time
from pathlib import Path
from tests.tracking.test_study_delivery import deliver

study, rng = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
n_kills = 0
while True:
    pid = os.fork()
    if pid == 0:
        deliver(study)
        os._exit(0)
    if n_kills < 8:
        time.sleep(rng.uniform(0.0, 0.25))  # any moment of its work
        os.kill(pid, signal.SIGKILL)
    if os.waitpid(pid, 0)[1] == 0:
        break
    n_kills += 1
print(n_kills)
"""


def test_kill_9_at_any_moment_neither_loses_nor_doubles(study: Path, shown: Shown) -> None:
    n_trials = 40
    events = [event for number in range(n_trials) for event in trial(number, 4)]
    write(study, sweep_started(), *events, sweep_ended(n_trials))
    done = subprocess.run(
        [sys.executable, "-c", KILLS, study, "1"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) >= 4
    names = Counter(run.info.run_name for run in shown.runs())
    assert names == {NAME: 1, **{f"trial-{number:05d}": 1 for number in range(n_trials)}}
    for run in shown.runs():
        assert run.info.status == "FINISHED"
        if run.info.run_name == NAME:
            continue
        number = int(run.data.tags["automl.trial"])
        assert run.data.params == {"lr": "0.1", "depth": str(number)}
        assert run.data.metrics["value"] == number + 0.25
        points = shown.client.get_metric_history(run.info.run_id, "val_loss")
        assert sorted((p.step, p.value) for p in points) == [
            (step, number + step / 5) for step in range(4)
        ]


def test_a_file_is_placed_whole_over_an_older_one(tmp_path: Path) -> None:
    source, folder = tmp_path / "last.pt", tmp_path / "store" / "checkpoints"
    for content in (b"one", b"two"):
        beside = tmp_path / "beside"
        beside.write_bytes(content)
        beside.rename(source)  # as checkpoints are written
        place_file(source, folder)
        assert [path.name for path in folder.iterdir()] == ["last.pt"]
        assert (folder / "last.pt").read_bytes() == content


def test_a_log_that_has_lost_its_end_makes_no_second_run(study: Path, shown: Shown) -> None:
    """Not even of trials that the study has lost too, and begins under the same numbers."""
    log, numbers = study / "events.log", (1, 2)
    write(study, sweep_started(), *trial(0))
    n_bytes = log.stat().st_size
    write(study, *trial(1, 9), *trial(2, 9))
    deliver(study)
    os.truncate(log, n_bytes)
    write(study, sweep_started(n="2"), *trial(2, 40), *trial(1, 40))  # longer than what was lost
    with delivery(study, fresh_from=n_bytes) as delivering:
        delivering.read()
        delivering.deliver()
    names = [f"trial-{number:05d}" for number in (0, *numbers)]
    assert sorted(run.info.run_name for run in shown.runs()) == [NAME, *names]
    for number in numbers:
        steps = [step for step, _, _ in shown.history(names[number], "val_loss")]
        assert steps == list(range(40))
