"""Trains each trial `study.repeats` times, with a seed for each repeat, over any session.

Repeats of the built-in networks train together as lanes of a pack. All others are calls of the
session, each in a thread of its own. One thread at a time runs: a call stops where it reports the
study's metric, and goes on when the other repeats have reported as often. The sweep therefore sees
one trial, which reports means and is pruned by them. `repeated_trial.py` makes the means.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from automl.objectives.repeats.repeated_trial import (
    RepeatedTrial,
    RepeatEvents,
    RepeatSettings,
    RepeatsFeed,
)
from automl.record.append_only import read_sealed, write_sealed
from automl.record.disk import make_folder
from automl.record.study_files import REPEAT_RESULT_FILE
from automl.trial import (
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    ObjectiveSession,
    OnEvent,
    OnEvents,
    Placement,
    SweepChannel,
    TrialEvent,
    TrialIsolation,
    TrialSource,
    TrialSpec,
    Verdict,
    single_event_handler,
)
from automl.trial.session_protocols import NoTrialIsolation

_MAX_REPORTS = 10_000
"""The newest reports that the result of a repeat keeps, as many as a `last.pt` does."""
TrainTogether: TypeAlias = Callable[[TrialSource, Placement, OnEvents], bool]
"""Trains the feed's trials as a pack, if they can train so; returns whether that was done."""


class _SingleTrialFeed:
    """A `TrialSource` of one trial."""

    n_lanes = 1

    def __init__(self, spec: TrialSpec) -> None:
        self._spec: TrialSpec | None = spec

    def next(self) -> TrialSpec | None:
        spec, self._spec = self._spec, None
        return spec


class _RepeatCall:
    """The call of a session for one repeat, in a thread of its own that waits after each report."""

    def __init__(
        self,
        carry_out: Callable[[OnEvent], None],
        take: OnEvent,
        get_verdict: Callable[[], Verdict],
        metric: str,
    ) -> None:
        """Take the study's metric, after whose reports the call waits."""
        self._carry_out, self._take = carry_out, take
        self._get_verdict, self._metric = get_verdict, metric
        self._may_run, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self.has_begun = self.has_ended = False

    def advance(self) -> None:
        """Let the call run until its next report or its end. Raises what the call raised."""
        if not self.has_begun:
            self._thread.start()
            self.has_begun = True
        self._may_run.release()
        self._waits.acquire()
        if self.has_ended:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            self._carry_out(self._on_event)
        except BaseException as error:  # noqa: BLE001  `advance` raises it in the trial's thread
            self._error = error
        finally:
            self.has_ended = True
            self._waits.release()

    def _on_event(self, event: TrialEvent) -> Verdict:
        verdict = self._take(event)
        is_report = isinstance(event, MetricsReported) and self._metric in event.metrics
        if not is_report or threading.current_thread() is not self._thread:
            return verdict
        states = _random_states()
        self._waits.release()
        self._may_run.acquire()
        for put_back in states:
            put_back()
        return self._get_verdict()


def _random_states() -> list[Callable[[], object]]:
    """Return functions that put the present states of the process's random generators back.

    Calls that take turns would else draw from one generator, which the last of them has seeded.
    """
    states: list[Callable[[], object]] = [partial(random.setstate, random.getstate())]
    if (numpy := sys.modules.get("numpy")) is not None:
        states.append(partial(numpy.random.set_state, numpy.random.get_state()))
    if (torch := sys.modules.get("torch")) is not None:
        states.append(partial(torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():
            states.append(partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return states


class RepeatsSession:
    """An `ObjectiveSession` that carries out each trial as several repeats by another session."""

    def __init__(
        self,
        session: ObjectiveSession,
        rules: RepeatSettings,
        train_together: TrainTogether | None = None,
        *,
        isolates: bool = False,
    ) -> None:
        """Take `train_together`, which trains repeats as a pack; None: they are called in turn.

        `isolates` says that trials run user code in this process.
        """
        self._session, self._rules, self._train_together = session, rules, train_together
        self._isolates = isolates
        self._isolation: TrialIsolation = NoTrialIsolation()

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        """Carry out one trial; its last event is its outcome. Raises what `on_event` raised."""
        dissolved: list[TrialEvent] = []

        def pass_on(taken: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            dissolved.extend(event for event in taken if _is_dissolved(event))
            return {} if dissolved else _pass_singly(taken, on_event)

        with self._isolation():
            events = RepeatEvents(self._rules, pass_on)
            feed = RepeatsFeed(_SingleTrialFeed(spec), self._rules.n_repeats, events)
            if self._trains_together(feed, placement, events) and not dissolved:
                return
            dissolved.clear()
            self._run_in_turn(spec, placement, events, line)

    def run_pack(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        """Train the feed's trials together with all their repeats, or else one after another."""
        events = RepeatEvents(self._rules, on_events)
        repeats = RepeatsFeed(feed, self._rules.n_repeats, events)
        with self._isolation():
            if self._trains_together(repeats, placement, events):
                return
        spec = repeats.newest or feed.next()
        while spec is not None:
            with self._isolation():
                self._run_in_turn(spec, placement, events, None)
            spec = feed.next() if self._isolation.process_is_reusable else None

    def _trains_together(
        self, feed: RepeatsFeed, placement: Placement, events: RepeatEvents
    ) -> bool:
        return self._train_together is not None and self._train_together(feed, placement, events)

    def _run_in_turn(
        self,
        spec: TrialSpec,
        placement: Placement,
        events: RepeatEvents,
        line: SweepChannel | None,
    ) -> None:
        """Call the session for each repeat, up to its next report, until all have ended."""
        trial, take = events.begin(spec), single_event_handler(events)
        calls = [
            _RepeatCall(
                partial(self._call, spec.repeat(repeat, self._rules.n_repeats), placement, line),
                take,
                lambda: trial.progress.verdict,
                self._rules.metric,
            )
            for repeat in range(self._rules.n_repeats)
        ]
        errors: list[BaseException] = []
        while going := [call for call in calls if _goes_on(call, trial)]:
            for call in going:
                if not _goes_on(call, trial):
                    continue
                trial.n_begun += not call.has_begun
                try:
                    call.advance()
                except BaseException as error:  # noqa: BLE001  raised when all calls have ended
                    trial.progress.stop(Verdict.STOP)
                    errors.append(error)
        if errors:
            raise errors[0]

    def _call(
        self,
        spec: TrialSpec,
        placement: Placement,
        line: SweepChannel | None,
        on_event: OnEvent,
    ) -> None:
        """Carry out a repeat, or pass on its result from before an interruption of its trial."""
        path = Path(spec.checkpoint_dir) / REPEAT_RESULT_FILE
        if (stored := _read_result(path, spec.number)) is not None:
            for event in stored:
                on_event(event)
            return
        reports: deque[MetricsReported] = deque(maxlen=_MAX_REPORTS)

        def keep(event: TrialEvent) -> Verdict:
            if isinstance(event, MetricsReported):
                reports.append(event)
            elif isinstance(event, FinishedOutcome):
                _write_result(path, reports, event)
            return on_event(event)

        self._session.run(spec, placement, keep, line)

    # --- what concerns the process, not its trials ------------------------------------------------

    def held_bytes(self) -> Sequence[int]:
        return self._session.held_bytes()

    @property
    def n_steps(self) -> int:
        return self._session.n_steps

    @property
    def programs_bytes(self) -> int:
        return self._session.programs_bytes

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        self._session.cap_memory(caps_bytes)

    def keep_apart(self, apart: TrialIsolation) -> None:
        """Use `apart` around all repeats of a trial; they run in threads of its."""
        if self._isolates:
            self._isolation = apart

    def give_back_memory(self) -> None:
        self._session.give_back_memory()

    def close(self) -> None:
        self._session.close()


def _is_dissolved(event: TrialEvent) -> bool:
    """Return whether an event ends a trial whose pack broke, so that its repeats go on in turn."""
    return isinstance(event, InterruptedOutcome) and event.pack_dissolved


def _goes_on(call: _RepeatCall, trial: RepeatedTrial) -> bool:
    """Return whether a call has to go on, or to begin: none begins for a trial that ends."""
    return not call.has_ended and (call.has_begun or trial.progress.verdict is Verdict.GO_ON)


def _pass_singly(events: Sequence[TrialEvent], on_event: OnEvent) -> Mapping[int, Verdict]:
    """Pass on the events of one trial one by one; return the first verdict that ends it."""
    verdicts = [on_event(event) for event in events]
    ends = [verdict for verdict in verdicts if verdict is not Verdict.GO_ON]
    return {events[0].trial: ends[0] if ends else Verdict.GO_ON}


def _write_result(path: Path, reports: Sequence[MetricsReported], outcome: FinishedOutcome) -> None:
    """Store what a repeat came to, so that it is not repeated if its trial is interrupted."""
    content = {
        "value": outcome.value,
        "reported": dict(outcome.reported),
        "metrics": dict(outcome.metrics),
        "reports": [[report.step, dict(report.metrics)] for report in reports],
    }
    with suppress(OSError):  # it only saves time
        make_folder(path.parent)
        write_sealed(path, content)


def _read_result(path: Path, number: int) -> Sequence[TrialEvent] | None:
    """Return the events of a repeat that finished before; None: it has not."""
    try:
        content = read_sealed(path)
        now = time.time()
        reports = [
            MetricsReported(number, now, int(step), {str(k): float(v) for k, v in metrics.items()})
            for step, metrics in content["reports"]
        ]
        by_name = [
            {str(name): float(v) for name, v in content.get(key, {}).items()}
            for key in ("reported", "metrics")
        ]
        value = float(content["value"])
        done = FinishedOutcome(number, now, value, reported=by_name[0], metrics=by_name[1])
        return [*reports, done]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
