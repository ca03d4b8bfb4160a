"""The record of a study, made of its events, and read while a sweep writes them."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.event_log import EventLog, encode_event
from automl.record.studies import newest_study, read_study, study_names
from automl.record.study_directory import StudyDirectory
from automl.record.study_record import record_from_events
from automl.record.trial_record import metrics_from_settings
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    DeviceKind,
    Direction,
    EnsembleBuilt,
    Event,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    ModelsEvaluated,
    OutOfMemoryOutcome,
    PaceMeasured,
    PrunedOutcome,
    RequestSource,
    RowsKind,
    StudyMetric,
    StudyMetrics,
    SweepEnded,
    SweepStarted,
    TrialStarted,
    TrialState,
)

LR = {"lr": 0.1}


def sweep(time: float = 0.0, name: str = "s", uuid: str = "u", **settings: str) -> SweepStarted:
    return SweepStarted(time, name, uuid, {"study.metric": "loss", **settings})


def start(number: int, time: float = 1.0, device: str = "cpu") -> TrialStarted:
    return TrialStarted(number, time, params=LR, device=device)


def losses(number: int, *values: float) -> list[Event]:
    return [MetricsReported(number, 2.0, step, {"loss": v}) for step, v in enumerate(values)]


# --- trials ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "kind"),
    [("cpu", DeviceKind.CPU), ("A10 GPU-8f", DeviceKind.GPU), ("none", None), ("", None)],
)
def test_a_trial_is_known_by_the_kind_of_device_it_was_on(
    device: str, kind: DeviceKind | None
) -> None:
    assert record_from_events([sweep(), start(0, device=device)]).trials[0].kind is kind


def test_of_an_execution_the_pace_that_was_told_last_counts() -> None:
    first, last = (PaceMeasured(t, DeviceKind.CPU, 1e6, t, execution=3) for t in (1.0, 2.0))
    probe, other = (PaceMeasured(1.0, DeviceKind.CPU, flops, 0.5) for flops in (1e6, 1e7))
    found = record_from_events([sweep(), first, probe, other, last]).paces
    assert set(found) == {last, probe, other}


def test_a_trial_is_known_by_all_that_happened_to_it() -> None:
    events = [
        start(3, 1.0),
        *losses(3, 0.5, 0.2, math.nan, 0.3),
        MemoryPeakMeasured(3, 3.0, peak_bytes=7),
        MemoryPeakMeasured(3, 3.5, peak_bytes=5, predicted_bytes=9, source=RequestSource.LEARNED),
        MemoryPeakMeasured(3, 3.6, peak_bytes=20, n_lanes=4),
        InterruptedOutcome(3, 4.0, "signal 9", by_worker_death=True),
        start(3, 5.0),
        OutOfMemoryOutcome(3, 6.0, "no room"),
        start(3, 7.0, device="a GPU"),
        CheckpointWritten(3, 7.5, 3, "checkpoints/trial-00003/best.pt", CheckpointKind.BEST),
        InterruptedOutcome(3, 8.0, "Ctrl-C"),
        start(3, 9.0, device="a GPU"),
        FinishedOutcome(3, 10.0, 0.2),
    ]
    trial = record_from_events([sweep(), *events]).trials[3]
    assert (trial.number, trial.params, trial.device) == (3, LR, "a GPU")
    assert (trial.state, trial.value, trial.cause) == (TrialState.FINISHED, 0.2, None)
    assert (trial.n_starts, trial.n_deaths, trial.n_out_of_memory) == (4, 1, 1)
    assert (trial.started, trial.ended, trial.peak_bytes) == (1.0, 10.0, 7)
    assert trial.peaks == {1: 7, 4: 20}, "a pack's is not its own"
    assert (trial.predicted_bytes, trial.predicted_by) == (9, RequestSource.LEARNED)
    assert (trial.best_value, trial.best_step) == (0.2, 1)
    assert (trial.n_reports, trial.last_step, trial.reports) == (4, 3, None)
    assert trial.checkpoints == {CheckpointKind.BEST: "checkpoints/trial-00003/best.pt"}


@pytest.mark.parametrize(
    ("events", "state", "cause"),
    [
        ([start(0)], TrialState.RUNNING, None),
        ([start(0), InterruptedOutcome(0, 2.0, "Ctrl-C")], TrialState.INTERRUPTED, "Ctrl-C"),
        ([start(0), OutOfMemoryOutcome(0, 2.0, "no room")], TrialState.INTERRUPTED, "no room"),
        ([start(0), InterruptedOutcome(0, 2.0, "Ctrl-C"), start(0)], TrialState.RUNNING, None),
    ],
)
def test_a_trial_that_goes_on_has_not_ended(
    events: list[Event], state: TrialState, cause: str | None
) -> None:
    trial = record_from_events(events).trials[0]
    assert (trial.state, trial.cause, trial.ended, trial.value) == (state, cause, None, None)
    assert not trial.state.is_final


def test_a_traceback_is_not_kept() -> None:
    trial = record_from_events(
        [start(0), FailedOutcome(0, 2.0, "ValueError: x", details="y" * 9000)]
    ).trials[0]
    assert (trial.cause, trial.ended) == ("ValueError: x", 2.0)
    assert trial.outcome == FailedOutcome(0, 2.0, "ValueError: x")


def test_reports_are_kept_where_that_is_asked_for() -> None:
    events = [sweep(), start(0), *losses(0, 0.5, 0.2), start(1)]
    kept = record_from_events(events, keep_reports=True).trials
    assert kept[0].reports == {0: {"loss": 0.5}, 1: {"loss": 0.2}}
    assert kept[1].reports == {}


def test_what_was_logged_twice_happened_once() -> None:
    again = MetricsReported(0, 9.0, 0, {"loss": 0.1})
    trial = record_from_events(
        [sweep(), *losses(0, 0.5), again, FinishedOutcome(0, 3.0, 0.5), again]
    ).trials[0]
    assert (trial.n_reports, trial.best_value, trial.state) == (1, 0.5, TrialState.FINISHED)


def test_trials_stand_in_the_order_of_their_numbers() -> None:
    assert list(record_from_events([start(2), start(0), start(1)]).trials) == [0, 1, 2]


# --- the study ------------------------------------------------------------------------------------


def test_of_an_evaluation_of_the_same_the_one_that_was_told_last_counts() -> None:
    def told(time: float, digest: str, *trials: int) -> ModelsEvaluated:
        return ModelsEvaluated(time, RowsKind.KEPT, 9, digest, trials, scores={})

    events = [sweep(), *losses(0, 0.5), told(1, "a", 0), told(2, "b", 0), told(3, "a", 0, 1)]
    again = told(4, "a", 0)
    record = record_from_events([*events, again])
    assert record.evaluations == (again, *events[-2:])
    assert record.sweeps[-1].end is None, "it is no end of a sweep"


def test_of_several_ensembles_the_newest_counts() -> None:
    first, newer = (EnsembleBuilt(time, 9, {0: 1.0}, {"loss": time}) for time in (1.0, 2.0))
    record = record_from_events([sweep(), *losses(0, 0.5), first, newer])
    assert record.ensemble == newer
    assert record.sweeps[-1].end is None, "it is no end of a sweep"


def test_sweeps_tell_how_they_ended_and_what_they_changed() -> None:
    ended = SweepEnded(5.0, False, {TrialState.FINISHED: 1}, 0, 0.5)
    study = record_from_events(
        [sweep(n="1", a="x"), ended, sweep(6.0, n="2"), sweep(7.0, n="2", a="x"), sweep(8.0, n="1")]
    )
    assert [s.changed for s in study.sweeps] == [{}, {"n": "2"}, {}, {"n": "1"}]
    assert [s.end for s in study.sweeps] == [ended, None, None, None]
    assert study.changed == {"n": "1"}
    assert study.settings == {"study.metric": "loss", "n": "1"}


def test_a_study_is_what_its_last_sweep_says() -> None:
    study = record_from_events(
        [sweep(name="a"), sweep(name="b", uuid="v"), sweep(name="c", uuid="v")]
    )
    assert (study.name, study.uuid, study.former_names) == ("c", "v", ("b",))


def test_an_end_whose_begin_is_lost_is_no_sweep() -> None:
    study = record_from_events([SweepEnded(5.0, True, {}, None, None), start(0)])
    assert (study.name, study.uuid, study.sweeps) == ("", "", ())
    assert study.metric == StudyMetric("val_loss", Direction.minimize)
    assert list(study.trials) == [0]


def test_a_direction_that_does_not_exist_is_the_default() -> None:
    assert metrics_from_settings({"study.direction": "up"}) == StudyMetrics()
    metrics = metrics_from_settings({"study.direction": "maximize"})
    assert metrics.leading.direction is Direction.maximize


def test_states_are_counted_all_of_them() -> None:
    study = record_from_events(
        [start(0), start(1), FinishedOutcome(1, 2.0, 0.5), start(2), FailedOutcome(2, 2.0, "x")]
    )
    counts = {state.value: n for state, n in study.counts().items()}
    assert counts == {"running": 1, "paused": 0, "interrupted": 0, "finished": 1, "pruned": 0} | {
        "failed": 1
    }


# --- the best trial -------------------------------------------------------------------------------


def test_the_best_report_wins_pruned_or_not() -> None:
    events = [
        *losses(0, 0.9, 0.5),
        FinishedOutcome(0, 3.0, 0.5),
        *losses(1, 0.2, 0.3),
        PrunedOutcome(1, 3.0, 1, 0.2),
        *losses(2, 0.1),
        FailedOutcome(2, 3.0, "x"),
        *losses(3, 0.05),
        *losses(4, math.nan),
        PrunedOutcome(4, 3.0, 0, math.nan),
    ]
    study = record_from_events([sweep(), *events])
    assert [trial.number for trial in study.ranking()] == [1, 0]
    assert study.best_values() == [0.5, 0.2, 0.2, 0.2], "after each trial that ended"
    assert study.best() == study.trials[1]
    largest = record_from_events([sweep(0.0, "s", "u", **{"study.direction": "maximize"}), *events])
    assert largest.best() == largest.trials[0]
    assert largest.best_values() == [0.5] * 4


def test_a_value_that_was_returned_compares_with_no_report() -> None:
    events = [sweep(), *losses(0, 0.1), PrunedOutcome(0, 3.0, 0, 0.1)]
    assert record_from_events(events).best() is not None
    returned = record_from_events([*events, *losses(1, 0.1), FinishedOutcome(1, 4.0, 0.9)])
    assert [trial.number for trial in returned.ranking()] == [1, 0]
    assert returned.best() == returned.trials[1]
    assert returned.best_values() == [0.9]
    assert record_from_events([*events, FinishedOutcome(1, 4.0, math.inf)]).best() is None
    assert record_from_events([]).best() is None


def test_the_metrics_of_a_trials_end_are_those_of_its_value() -> None:
    reports = [MetricsReported(0, 2.0, 0, {"val_loss": 0.1, "val_error": 0.2, "val_auc": 0.9})]
    settings = {"study.metric": "val_loss"}
    began: list[Event] = [SweepStarted(0.0, "s", "u", settings), start(0), *reports]
    by_report = record_from_events([*began, FinishedOutcome(0, 3.0, 0.1)])
    assert by_report.trials[0].best_metrics["val_error"] == 0.2
    ended = FinishedOutcome(0, 3.0, 0.15, metrics={"val_loss": 0.15, "val_error": 0.25})
    at_end = record_from_events([*began, ended])
    assert at_end.trials[0].best_metrics == {"val_loss": 0.15, "val_error": 0.25}


# --- read from a folder ---------------------------------------------------------------------------


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "studies" / "otter"
    path.mkdir(parents=True)
    (path / "config.yaml").touch()
    with EventLog.open(path / "events.log") as log:
        for event in [sweep(name="crane"), start(0), *losses(0, 0.5)]:
            log.append(event)
    return path


def test_a_study_is_read_under_the_name_of_its_folder(study: Path) -> None:
    assert (read_study(study).name, read_study(study).uuid) == ("otter", "u")
    assert read_study(study, keep_reports=True).trials[0].reports == {0: {"loss": 0.5}}


def test_a_study_is_read_while_a_sweep_writes_without_a_torn_line(study: Path) -> None:
    place = StudyConfig(name=study.name, dir=str(study.parent))
    with StudyDirectory.open(place, must_exist=True), EventLog.open(study / "events.log") as log:
        log.append(SweepStarted(time.time(), "otter", "u", {}))
        log.append(TrialStarted(0, time.time(), {"lr": 0.1}, "cpu"))
        log.append(MetricsReported(0, 2.0, 1, {"loss": 0.25}))
        assert read_study(study).trials[0].n_reports == 2
        with (study / "events.log").open("ab") as torn:
            torn.write(encode_event(FinishedOutcome(0, 3.0, 0.25))[:-1])
        before = (study / "events.log").read_bytes()
        assert read_study(study).trials[0].state is TrialState.RUNNING
        assert (study / "events.log").read_bytes() == before


def test_a_folder_that_is_no_study_is_refused_with_those_there_are(study: Path) -> None:
    for name in ("empty", "missing"):
        (study.parent / "empty").mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match=rf"study\.name={name}: .* there are: otter\. Name"):
            read_study(study.parent / name)


def test_a_log_that_cannot_be_read_is_refused_with_the_remedy(study: Path) -> None:
    (study / "events.log").unlink()
    (study / "events.log").mkdir()
    with pytest.raises(ConfigError, match=r"events\.log cannot be read .* ask its owner"):
        read_study(study)


def test_a_pipe_in_place_of_a_log_is_not_waited_for(study: Path) -> None:
    (study / "events.log").unlink()
    os.mkfifo(study / "events.log")
    assert read_study(study).sweeps == ()


def test_the_newest_study_is_the_one_at_work_last(study: Path) -> None:
    (study.parent / "no study").mkdir()
    assert study_names(study.parent) == ["otter"]
    assert newest_study(study.parent) == study
    assert newest_study(study / "none") is None


EVALUATED: dict[str, object] = {
    "event": "Evaluated",
    "time": 1.0,
    "kind": "kept",
    "n_rows": 3,
    "digest": "a",
    "trials": [0],
    "scores": {},
}


@pytest.mark.parametrize(
    "fields",
    [
        {"event": "Reported", "trial": 0, "time": 1.0, "step": 1, "metrics": ["loss"]},
        {"event": "Reported", "trial": 0, "time": 1.0, "step": 1, "metrics": {"loss": None}},
        {"event": "Reported", "trial": 0, "time": 1.0, "step": "1", "metrics": {}},
        {"event": "Reported", "trial": 0, "time": 1.0, "step": 1, "metrics": {"a": 10**999}},
        {"event": "Started", "trial": [0], "time": 1.0, "params": {}, "device": "cpu"},
        {"event": "Finished", "trial": 0, "time": 1.0, "value": "0.5"},
        {"event": "MemoryPeak", "trial": 0, "time": 1.0, "peak_bytes": None},
        {"event": "SweepStarted", "time": 1.0, "study": "s", "study_uuid": "u", "settings": []},
        {**EVALUATED, "scores": {"trial-00000": 0.5}},
        {**EVALUATED, "scores": {"trial-00000": {"loss": [0.5, "x", 1]}}},
        {**EVALUATED, "trials": 0},
        {**EVALUATED, "trials": ["one"]},
        {**EVALUATED, "n_rows": "many"},
        {**EVALUATED, "kind": "odd"},
        {**EVALUATED, "differences": {"a": {"loss": [1, 2, 3]}}},
        {"event": "Tuned", "time": 1.0, "model": "m", "chosen": "", "figures": {"a": 1}},
        {"event": "Tuned", "time": 1.0, "model": "m", "chosen": "", "figures": {"a": {"b": "c"}}},
        {"event": "Tuned", "time": 1.0, "model": 3, "chosen": "", "figures": {}},
    ],
)
def test_a_strangers_line_of_other_types_is_left_out(
    fields: dict[str, object], study: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = read_study(study)
    with (study / "events.log").open("a") as log:
        log.write(json.dumps(fields) + "\n")
    assert read_study(study) == before
    assert "is no event and is left out" in caplog.text


def test_trials_from_before_the_first_sweep_are_judged_by_its_metric() -> None:
    """A study that began with one of Optuna's has the events of those trials first."""
    values = enumerate([0.1, 0.9, 0.5])
    record = record_from_events(
        [
            TrialStarted(0, 1.0, {"x": 1.0}, "Optuna"),
            *(MetricsReported(0, 2.0, step, {"accuracy": value}) for step, value in values),
            FinishedOutcome(0, 2.0, 0.9),
            sweep(3.0, **{"study.metric": "accuracy", "study.direction": "maximize"}),
        ]
    )
    trial = record.trials[0]
    assert (trial.best_step, trial.best_value, trial.n_reports) == (1, 0.9, 3)
