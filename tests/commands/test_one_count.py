"""Every command tells the same states, counts and times of a study, whatever ended its sweeps."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.record.event_log import encode_event
from automl.record.study_record import record_from_events
from automl.report_page.findings import device_seconds
from automl.report_page.study_data import read_study_data
from automl.terminal.study_view import StudyStatus, look_at, read_status, recorded_view
from automl.terminal.view import RunningRow, SweepView, WaitingRow, write_view
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    SweepEnded,
    SweepStarted,
    TrialOutcome,
    TrialStarted,
    TrialState,
)
from tests.report.studies import BEGUN, SETTINGS

N_TRIALS = 6
OUTCOMES: dict[str, Callable[[int, float], TrialOutcome]] = {
    "finished": lambda trial, time: FinishedOutcome(trial, time, 0.5),
    "failed": lambda trial, time: FailedOutcome(trial, time, "no table"),
    "interrupted": lambda trial, time: InterruptedOutcome(trial, time, "the sweep stops"),
}


@dataclass
class ReferenceStudy:
    """What happened to a study, and what its commands must tell of it."""

    events: list[Event] = field(default_factory=list)
    states: dict[int, str] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    """The time in which each trial ran; one runs at a time, so that it adds up to the device's."""
    worked_seconds: float = 0.0
    """The time in which sweeps worked."""
    ended: str = ""

    def counts(self) -> dict[str, int]:
        return dict(Counter(self.states.values()))


@st.composite
def studies(draw: st.DrawFn) -> ReferenceStudy:
    """A study whose sweeps come to their end, are interrupted or are killed, hours apart."""
    study, now = ReferenceStudy(), BEGUN
    pauses = st.sampled_from([1.0, 30.0, 600.0, 28_800.0])
    steps = st.lists(st.sampled_from([0.5, 2.0, 40.0]), max_size=4)
    step = 0  # one that was reported before is not logged again
    for _ in range(draw(st.integers(1, 3))):
        begun, killed = now, draw(st.booleans())
        study.events.append(SweepStarted(now, "any", "0" * 32, SETTINGS))
        left = [n for n in range(N_TRIALS) if study.states.get(n) not in ("finished", "failed")]
        tried = left[: draw(st.integers(0, 3))]
        for trial in tried:
            study.events.append(TrialStarted(trial, now, {"lr": 0.1}, "cpu"))
            started = now
            for seconds in draw(steps):
                now, step = now + seconds, step + 1
                study.events.append(MetricsReported(trial, now, step, {"val_loss": 0.5}))
            study.states[trial] = draw(st.sampled_from([*OUTCOMES]))
            if killed and trial == tried[-1]:
                study.states[trial] = "interrupted"
            else:
                now += 1.0
                study.events.append(OUTCOMES[study.states[trial]](trial, now))
            study.seconds[trial] = study.seconds.get(trial, 0.0) + now - started
        if not killed:
            study.events.append(SweepEnded(now, False, {}, None, None))
        study.worked_seconds += now - begun
        now += draw(pauses)
    return study


def _views(study: ReferenceStudy) -> Iterator[SweepView | None]:
    """Yield what may stand in `status.json`: nothing, or what an earlier moment looked like."""
    yield None
    ran = RunningRow(0, "cpu", {}, 3.0, None, {})
    view = SweepView("any", "", BEGUN - 1.0, 20, "val_loss", {"running": 1}, running=(ran,))
    yield view
    yield SweepView(
        *("any", "", study.events[-1].time, 20, "val_loss", {"running": 1, "waiting": 1}),
        running=(ran,),
        waiting=(WaitingRow(5, "waiting: for room"),),
    )


@given(study=studies(), n_view=st.integers(0, 2))
def test_all_commands_tell_one_count_and_one_time(study: ReferenceStudy, n_view: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any"
        path.mkdir()
        (path / "config.yaml").touch()
        (path / "lock").touch()
        (path / "events.log").write_bytes(b"".join(map(encode_event, study.events)))
        view = [*_views(study)][n_view]
        if view is not None:
            write_view(path / "status.json", view)
        status, record = read_status(path)
        in_list, data = look_at(path), read_study_data(path)
    assert isinstance(in_list, StudyStatus)

    wanted, shown = study.counts(), status.view
    assert {state: n for state, n in shown.counts.items() if n} == wanted
    assert in_list.view.counts == shown.counts
    assert {s.value: n for s, n in record.counts().items() if n} == wanted
    assert data.record.counts() == record.counts()
    assert status.state == in_list.state == "interrupted"
    assert "go on with: resume it" in (status.note("resume it") or "")
    assert not shown.running
    assert not shown.waiting

    seconds = {number: trial.seconds for number, trial in record.trials.items()}
    assert seconds == pytest.approx({number: study.seconds[number] for number in study.states})
    in_all = sum(study.seconds.values())
    assert in_list.view.device_seconds == shown.device_seconds == pytest.approx(in_all)
    assert sum(device_seconds(data.executions).values()) == pytest.approx(in_all)
    assert data.worked_seconds(study.events[-1].time) == pytest.approx(study.worked_seconds)
    ended = [state for state in TrialState if state.is_final]
    assert sum(wanted.get(state.value, 0) for state in ended) == len(data.ended)


def test_a_trial_that_was_stopped_since_the_last_view_runs_no_more() -> None:
    """The sweep at work has started another one in its place."""
    record = record_from_events(
        [
            SweepStarted(BEGUN, "any", "0" * 32, SETTINGS),
            TrialStarted(0, BEGUN + 1.0, {"lr": 0.1}, "cpu"),
            InterruptedOutcome(0, BEGUN + 3.0, "stopped by a command"),
            TrialStarted(1, BEGUN + 3.0, {"lr": 0.2}, "cpu"),
        ]
    )
    ran = RunningRow(0, "cpu", {}, 1.0, None, {})
    view = SweepView("any", "", BEGUN + 2.0, 20, "val_loss", {"running": 1}, running=(ran,))
    shown = recorded_view(view, record, is_swept=True)
    assert {state: n for state, n in shown.counts.items() if n} == {"running": 1, "interrupted": 1}
    assert shown.running == ()
