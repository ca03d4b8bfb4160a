"""What MLflow is told of trials and studies, as plain values."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from automl.config import KeepCheckpoints
from automl.record.study_record import record_from_events
from automl.record.texts import redact_settings, redact_text
from automl.tracking.view.run_update import RunUpdate, StudyRef, clean_key, clean_params, clean_tags
from automl.tracking.view.shared_view import shared_view_tag
from automl.tracking.view.study_run import StudyRun, front_trial_update, study_note
from automl.tracking.view.trial_run import TrialRun
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    FailedOutcome,
    FinishedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OutOfMemoryOutcome,
    PrunedOutcome,
    RequestSource,
    SweepEnded,
    SweepStarted,
    TooLargeOutcome,
    TrialEvent,
    TrialOutcome,
    TrialState,
    TrialTagged,
)
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
)


def told(
    *events: TrialEvent, before: list[TrialEvent] | None = None, keep: str = "all"
) -> RunUpdate:
    """What MLflow is told of `events`, when it has been told of `before`."""
    before = before or []
    run = TrialRun((before or events)[0], fresh=True)
    for event in (*before, *events):
        run.take(event)
    return run.update(events, UUID, "parent-id", KeepCheckpoints(keep))


def test_a_trial_seen_in_one_go_is_one_update() -> None:
    update = told(begin(7), report(7, 0), report(7, 1), finish(7))
    assert update.name == "trial-00007"
    assert update.key == {"automl.study": UUID, "automl.trial": "7"}
    assert update.birth_tags == {"mlflow.parentRunId": "parent-id"}
    assert update.params == {"lr": "0.1", "depth": "7"}
    assert update.tags == {"automl.state": "finished", "automl.device": "cpu"}
    assert (update.status, update.start_ms) == ("FINISHED", int((BEGUN + 7) * 1000))
    assert update.end_ms == int((BEGUN + 7.5) * 1000)
    assert [(p.name, p.step) for p in update.metrics] == [
        ("train_loss", 0),
        ("val_loss", 0),
        ("train_loss", 1),
        ("val_loss", 1),
        ("value", 1),
    ]
    assert update.metrics[2].time_ms == round((BEGUN + 7.01) * 1000)


def test_a_running_trial_tells_only_what_is_new() -> None:
    first = told(begin(0), report(0, 0))
    assert (first.begins, first.status, first.end_ms) == (True, None, None)
    assert first.tags["automl.state"] == "running"
    then = told(report(0, 1), before=[begin(0), report(0, 0)])
    assert (then.begins, then.status, then.tags) == (False, None, {})
    assert [p.step for p in then.metrics] == [1, 1]


def test_what_the_objective_notes_is_a_tag_and_none_of_ours() -> None:
    noted = [
        TrialTagged(0, BEGUN, *tag) for tag in (("data", "v1"), ("data", "v2"), ("automl.x", "?"))
    ]
    assert told(*noted, before=[begin(0)]).tags == {"data": "v2"}
    assert told(TrialTagged(0, BEGUN, "automl.state", "won"), finish(0), before=[begin(0)]).tags[
        "automl.state"
    ] == ("finished")


@pytest.mark.parametrize(
    ("outcome", "status", "state", "ended"),
    [
        (FinishedOutcome(0, BEGUN, value=1.0), "FINISHED", "finished", True),
        (PrunedOutcome(0, BEGUN, step=1, value=1.0), "KILLED", "pruned", True),
        (TooLargeOutcome(0, BEGUN, cause="does not fit", excess=0.5), "KILLED", "pruned", True),
        (FailedOutcome(0, BEGUN, cause="ValueError: x"), "FAILED", "failed", True),
        (interrupt(0), "SCHEDULED", "interrupted", False),
        (OutOfMemoryOutcome(0, BEGUN, cause="no room"), "SCHEDULED", "interrupted", False),
    ],
)
def test_each_outcome_has_its_status(
    outcome: TrialOutcome, status: str, state: str, ended: bool
) -> None:
    update = told(begin(0), outcome)
    assert update.status == status
    assert update.tags["automl.state"] == state
    assert (update.end_ms is not None) == ended
    assert update.tags.get("automl.cause") == getattr(outcome, "cause", None)


def test_a_trial_that_goes_on_is_running_again_without_its_old_cause() -> None:
    update = told(begin(0), before=[begin(0), interrupt(0)])
    assert (update.status, update.end_ms) == ("RUNNING", None)
    assert update.tags["automl.cause"] == ""
    assert update.tags["automl.state"] == "running"


def test_what_happened_in_one_go_tells_as_it_does_piece_by_piece() -> None:
    update = told(begin(0), interrupt(0), begin(0), MemoryPeakMeasured(0, BEGUN, 5), finish(0))
    assert (update.status, update.tags["automl.cause"]) == ("FINISHED", "")
    assert [p.name for p in update.metrics] == ["value", "memory_peak_bytes"]


def test_the_value_is_the_latest_point_even_among_reports_of_that_name() -> None:
    reports = [MetricsReported(0, BEGUN + step, step, {"value": float(step)}) for step in range(3)]
    update = told(begin(0), *reports, FinishedOutcome(0, BEGUN + 9, value=0.0))
    last = max(update.metrics, key=lambda p: (p.step, p.time_ms))
    assert last.value == 0.0


def test_the_value_of_repeats_has_its_standard_error() -> None:
    update = told(begin(0), FinishedOutcome(0, BEGUN, 1.0, part_values=(0.5, 1.0, 1.5)))
    assert {p.name: p.value for p in update.metrics}["value_se"] == pytest.approx(0.5 / 3**0.5)


def test_infinite_values_are_shown_as_nan_and_named() -> None:
    odd = MetricsReported(0, BEGUN, 0, {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1.0})
    update = told(begin(0), odd, FinishedOutcome(0, BEGUN, value=math.inf))
    values = {p.name: p.value for p in update.metrics}
    assert all(math.isnan(values[key]) for key in ("a", "b", "c", "value"))
    assert values["d"] == 1.0
    assert update.tags["automl.infinite"].endswith(": a, b")


def test_a_failure_tells_its_end_of_the_traceback() -> None:
    failed = FailedOutcome(
        0, BEGUN, cause="ValueError: x", details="first\n" + "y" * 9000 + "\nlast"
    )
    note = told(begin(0), failed).tags["mlflow.note.content"]
    assert len(note) <= 5000
    assert note.startswith("**`ValueError: x`**\n\n")
    assert "last" in note
    assert "[cut, 9011 characters]" in note


def test_a_cause_is_no_markdown_and_a_traceback_stays_in_its_block() -> None:
    failed = FailedOutcome(
        0, BEGUN, cause="E: http://***@host `a_b` [x](y) <i>", details="x\n```\ny"
    )
    note = told(begin(0), failed).tags["mlflow.note.content"]
    head, _, block = note.partition("\n\n")
    assert head == "**`E: http://***@host 'a_b' [x](y) <i>`**"
    fence = block.splitlines()[0]
    assert block.splitlines() == [fence, "x", "```", "y", fence]
    assert len(fence) > 3


def test_the_memory_peak_is_told_at_the_end() -> None:
    peaks = [MemoryPeakMeasured(0, BEGUN, peak_bytes=n) for n in (5, 9, 7)]
    assert told(begin(0), *peaks).metrics == ()
    update = told(finish(0), before=[begin(0), *peaks])
    assert {p.name: p.value for p in update.metrics}["memory_peak_bytes"] == 9.0
    assert update.tags["automl.memory_peak"] == "9"
    assert "automl.memory_predicted" not in update.tags


def test_what_was_predicted_stands_beside_the_peak() -> None:
    peak = MemoryPeakMeasured(0, BEGUN, 5, predicted_bytes=6, source=RequestSource.LEARNED)
    told_now = {key: tag for key, tag in told(begin(0), peak).tags.items() if "memory" in key}
    assert told_now == {}, "it is not known before the end"
    tags = told(begin(0), peak, finish(0)).tags
    assert {key: tag for key, tag in tags.items() if "memory" in key} == {
        "automl.memory_peak": "5",
        "automl.memory_predicted": "6",
        "automl.memory_predicted_by": "learned",
    }


def checkpoint(kind: CheckpointKind) -> CheckpointWritten:
    return CheckpointWritten(
        0, BEGUN, step=1, path=f"checkpoints/trial-00000/{kind.value}.pt", kind=kind
    )


@pytest.mark.parametrize(
    ("keep", "paths"),
    [("all", {"last.pt", "best.pt"}), ("best", {"best.pt"}), ("none", set())],
)
def test_checkpoints_are_stored_at_the_end_as_chosen(keep: str, paths: set[str]) -> None:
    checkpoints = [checkpoint(kind) for kind in (*CheckpointKind, CheckpointKind.LAST)]
    before = [begin(0), *checkpoints]
    assert list(told(begin(0), *checkpoints, keep=keep).artifacts) == []
    assert list(told(interrupt(0), before=before, keep=keep).artifacts) == []
    artifacts = told(finish(0), before=before, keep=keep).artifacts
    assert {path.removeprefix("checkpoints/trial-00000/") for path in artifacts} == paths
    assert len(told(finish(0), before=before, keep=keep).artifacts) == len(paths)


def study_told(
    *events: SweepStarted, n_finished: int | None = None, done: bool = True
) -> RunUpdate:
    if n_finished is None:
        return study_updated(*events)
    return study_updated(*events, sweep_ended(n_finished, done))


def study_updated(*events: SweepStarted | SweepEnded) -> RunUpdate:
    """What MLflow is told of the last of `events`."""
    return StudyRun(record_from_events(events), StudyRef(UUID, NAME)).update([events[-1]], "ann")


def test_a_study_begins_with_a_note_of_what_it_is_about() -> None:
    settings = {"study.metric": "acc", "study.direction": "maximize", "data.kind": "disc"}
    space = {"space.b.choices": "[32, 64]", "space.lr.low": "0.1", "space.lr.high": "1.0"}
    odd = {
        "space.net.depth.low": "2",
        "space.net.depth.high": "9",
        "space.net.depth.when.a.low": "1",
        "space.fixed": "3",
    }
    update = study_told(sweep_started(**settings, **space, **odd))
    note = update.birth_tags["mlflow.note.content"]
    assert note.startswith("Study of automl: maximizes `acc`, data disc. All settings:")
    own = settings | {"objective.kind": "python", "objective.target": "a:b"}
    assert "maximizes `acc`, objective a:b. All settings:" in study_note(own), "it has no data"
    rows = [line for line in note.splitlines() if line.startswith("|")][2:]
    assert rows == ["| b | 32, 64 |", "| lr | 0.1..1.0 |", "| net.depth | 2..9 |"]
    assert update.params == {}
    assert (update.status, update.end_ms) == (None, None)
    assert update.key == {"automl.study": UUID, "automl.kind": "study"}


@pytest.mark.parametrize(
    ("n_finished", "done", "status", "state"),
    [
        (2, True, "FINISHED", "done"),
        (0, True, "FAILED", "failed"),
        (2, False, "SCHEDULED", "interrupted"),
    ],
)
def test_a_study_ends_with_its_summary(
    n_finished: int, done: bool, status: str, state: str
) -> None:
    update = study_told(sweep_started(), n_finished=n_finished, done=done)
    assert (update.status, update.tags["automl.state"]) == (status, state)
    assert update.tags["automl.best_trial"] == "trial-00000"
    metrics = {p.name: p.value for p in update.metrics}
    assert metrics == {"trials_finished": n_finished, "trials_failed": 0.0, "best_value": 0.25}


def test_a_study_whose_trials_keep_failing_has_failed() -> None:
    stopped = replace(sweep_ended(1, False), failed=True)
    assert study_updated(sweep_started(), stopped).status == "FAILED"


def test_settings_that_changed_are_tags() -> None:
    update = study_told(sweep_started(n="20"), sweep_started(n="40"))
    assert update.tags["automl.changed.n"] == "40"
    assert update.status == "RUNNING"
    back = study_told(sweep_started(n="20"), sweep_started(n="40"), sweep_started(n="20"))
    assert back.tags["automl.changed.n"] == "20"


def test_the_shared_view_keeps_as_many_params_as_fit() -> None:
    names = [f"a_param_with_quite_a_long_name_{n}" for n in range(200)]
    view = shared_view_tag({f"space.{name}.low": "1" for name in names}, 5)
    assert len(view) <= 5000
    shown = json.loads(json.loads(view)["state"])
    params = [column for column in shown["selectedColumns"] if column.startswith("params.")]
    assert params == [f"params.`{name}`" for name in names[: len(params)]]
    assert 20 < len(params) < 200
    assert shown["selectedColumns"][0] == "metrics.`value`"
    assert set(params) < set(shown["columnOrder"])


def view_state(settings: dict[str, str], *best: list[str]) -> Any:
    return json.loads(json.loads(shared_view_tag(settings, 5, best))["state"])


PORTFOLIO = {
    "study.metric": "val_auc",
    "study.direction": "maximize",
    "model.families": "['linear', 'mlp']",
    "space.linear_l2.low": "1",
    "space.mlp_depth.low": "1",
    "space.mlp_lr.low": "1",
    "space.mlp_batch_size": "by_rows",
}


def test_the_view_begins_with_the_metric_and_the_params_of_the_best_trials() -> None:
    of_mlp = ["family", "mlp_lr", "mlp_depth", "mlp_batch_size"]
    at_first, later = view_state(PORTFOLIO), view_state(PORTFOLIO, of_mlp, ["family", "asked_for"])
    known, params = ["metrics.`best_val_auc`", "params.`family`"], ["mlp_lr", "mlp_depth"]
    expected = [*known, *(f"params.`{name}`" for name in (*params, "asked_for"))]
    assert later["selectedColumns"][:-3] == later["columnOrder"][2:-3] == expected
    assert at_first["selectedColumns"][:3] == [*known, "params.`linear_l2`"]
    assert (later["orderByKey"], later["orderByAsc"]) == (known[0], False)


def test_the_charts_begin_with_the_metric_of_all_trials() -> None:
    state = view_state(PORTFOLIO)
    assert state["runsHiddenMode"] == "SHOW_ALL"
    first, second = state["compareRunCharts"]
    assert (first["type"], first["metricKey"]) == ("LINE", "val_auc")
    assert (second["type"], second["metricKey"]) == ("BAR", "best_val_auc")
    trials, others = state["compareRunSections"]
    assert first["metricSectionId"] == second["metricSectionId"] == trials["uuid"]
    assert others["name"] == "Model metrics", "where MLflow puts all others"


def test_a_trial_has_its_final_value_by_the_name_of_the_metric() -> None:
    study = StudyRun(record_from_events([sweep_started(**PORTFOLIO)]), StudyRef(UUID, NAME))
    update = study.trial_update(told(begin(0), finish(0)), 0)
    assert {p.name: p.value for p in update.metrics} == {"value": 0.25, "best_val_auc": 0.25}
    assert set(update.once) > {"value", "best_val_auc"}, "or one put back would stand twice"


def test_an_unknown_best_trial_is_left_out() -> None:
    none = replace(
        sweep_ended(0), best_trial=None, best_value=None, n_by_state={TrialState.FAILED: 1}
    )
    update = study_updated(sweep_started(), none)
    assert "automl.best_trial" not in update.tags
    assert [p.name for p in update.metrics] == ["trials_failed"]


KEYS = {
    "val_loss": "val_loss",
    "space.lr.low": "space.lr.low",
    "val/acc 5": "val/acc 5",
    "acc@5": "acc_5",
    "../../x": "x",
    "a//b": "a/b",
    "/a/": "a",
    "": "_",
    "..": "_",
    "ä": "ä",
    "a" * 300: "a" * 250,
}


@pytest.mark.parametrize("key", KEYS)
def test_names_are_made_such_that_mlflow_takes_them(key: str) -> None:
    assert clean_key(key) == KEYS[key]


def test_mlflow_takes_them(shown: Shown) -> None:
    run_id = shown.client.create_run("0").info.run_id
    for key in KEYS.values():
        shown.client.log_metric(run_id, key, 1.0)
    assert set(shown.client.get_run(run_id).data.metrics) == set(KEYS.values())


def test_long_values_are_cut_with_a_note() -> None:
    (param,) = clean_params({"a": "x" * 9000}).values()
    assert (len(param), param[-24:]) == (6000, "x … [cut, 9000 characters]"[-24:])
    (tag,) = clean_tags({"a": "x" * 9000}).values()
    assert len(tag) == 5000
    assert clean_params({"a": "x" * 6000}) == {"a": "x" * 6000}


def test_secrets_are_masked_by_value_and_by_name() -> None:
    assert redact_text("login of ann failed: hunter2", ["hunter2"]) == "login of ann failed: ***"
    settings = {"a.api_key": "k", "max_tokens": "5", "b": "http://u:pw@h", "token": "t"}
    assert redact_settings(settings) == {
        "a.api_key": "***",
        "max_tokens": "5",
        "b": "http://u:***@h",
        "token": "***",
    }
    assert "pw" not in clean_params({"a": "http://u:pw@h"})["a"]


def test_what_no_store_could_encode_is_replaced() -> None:
    assert clean_params({"a\udc80": "x\ud800y"}) == {"a_": "x�y"}
    assert clean_tags({"a": "x\ud800\x00y token: s3cret"}) == {"a": "x��y token: ***"}
    assert clean_params({"prompt": "token: hello"}) == {"prompt": "token: hello"}, "it is data"


def test_each_metric_of_several_is_told_with_its_final_value() -> None:
    settings = {"study.metric": "err, ms", "study.direction": "minimize, minimize"}
    record = record_from_events([SweepStarted(BEGUN, NAME, UUID, settings)])
    values = {"err": 0.5, "ms": 3.0}
    update = told(begin(3), FinishedOutcome(3, BEGUN, 0.5, (), values))
    shown = StudyRun(record, StudyRef(UUID, NAME)).trial_update(update, 3)
    final = {point.name: point.value for point in shown.metrics}
    assert final == {"value": 0.5, "best_err": 0.5, "best_ms": 3.0}
    assert len(shown.metrics) == 3


def test_trials_are_tagged_when_they_come_to_the_front_and_leave_it() -> None:
    ended = SweepEnded(BEGUN, True, {}, 1, 0.5, front=(1, 3))
    assert front_trial_update(ended, 3, UUID).tags == {"automl.front": "true"}
    assert front_trial_update(ended, 2, UUID).tags == {"automl.front": "false"}
