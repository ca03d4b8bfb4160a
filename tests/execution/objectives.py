"""Sessions for the executors' contract: plain objectives that other processes can import."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from automl.errors import StorageError
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    OnEvent,
    OnEvents,
    ParamAnswer,
    ParamQuestion,
    Placement,
    PrunedOutcome,
    StillRunning,
    SweepChannel,
    TrialIsolation,
    TrialSource,
    TrialSpec,
    TrialTagged,
    Verdict,
)


class ScriptedSession:
    """Does what the trial's param `act` says, three steps long."""

    def __init__(self, config: object) -> None:
        self.config = config
        self._between_trials: Callable[[], None] | None = None
        self.held = 0

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        self._line = line
        act = getattr(self, f"_{spec.params['act']}")
        act(spec, lambda step: on_event(_report(spec, step)), on_event)

    def run_pack(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        """Lanes of one step each; a free lane asks for the next. `die` kills the whole pack."""
        while (spec := feed.next()) is not None:
            if spec.params["act"] == "die":
                self._die(spec, None, lambda event: Verdict.GO_ON)
            if spec.params["act"] == "joined_late":
                self._joined_late(spec, feed, on_events)
                continue
            if spec.params["act"] == "hang":
                self._hang(spec, None, lambda event: Verdict.GO_ON)
            if spec.params["act"] == "pauses":
                self._pauses(spec, on_events)
                continue
            on_events([_report(spec, 0)])
            on_events([FinishedOutcome(spec.number, time.time(), float(feed.n_lanes))])

    def _pauses(self, spec: TrialSpec, on_events: OnEvents) -> None:
        """Stop once it is told to; begun again, finish unless it is told to stop again."""
        verdicts = on_events([_report(spec, 0 if spec.is_first else 1)])
        while spec.is_first and spec.number not in verdicts:
            verdicts = on_events([StillRunning(spec.number, time.time())])
            time.sleep(0.005)
        verdict = verdicts.get(spec.number, Verdict.GO_ON)
        if verdict is Verdict.GO_ON:
            on_events([FinishedOutcome(spec.number, time.time(), 0.5)])
        else:
            on_events([InterruptedOutcome(spec.number, time.time(), verdict.value)])

    def _warn(self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent) -> None:
        logging.getLogger("automl.objectives").warning("batch_size is clipped")
        self._finish(spec, report, on_event)

    def _lose_gpu(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        on_event(
            InterruptedOutcome(spec.number, time.time(), "its GPU failed", by_worker_death=True)
        )

    def _lose_program(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        died = InterruptedOutcome(
            spec.number, time.time(), "SIGKILL", by_worker_death=True, killed=True
        )
        on_event(died)

    def _asks(self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent) -> None:
        """Reports once, and then waits for its verdict without a report."""
        report(0)
        asking = StillRunning(spec.number, time.time())
        while (verdict := on_event(asking)) is Verdict.GO_ON:
            time.sleep(0.005)
        on_event(InterruptedOutcome(spec.number, time.time(), verdict.value))

    def _full_disk(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        raise StorageError("last.pt cannot be written (No space left on device)")

    def _fork_and_hang(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        children = [
            subprocess.Popen(["sleep", "3600"], start_new_session=n > 0, close_fds=n < 2)
            for n in range(3)
        ]
        pids = [os.getpid(), *(child.pid for child in children)]
        print(*pids, flush=True)  # noqa: T201 - read from the trial's output file
        time.sleep(3600)

    def held_bytes(self) -> Sequence[int]:
        return [self.held]

    n_steps = 42
    programs_bytes = 7 * 2**30

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        self.caps = list(caps_bytes)

    def _abort(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        os.kill(os.getpid(), signal.SIGABRT)

    def _capped(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        on_event(FinishedOutcome(spec.number, time.time(), float(self.caps[0])))

    def _capped_later(self, spec: TrialSpec, report: Callable[[int], Verdict], on: OnEvent) -> None:
        report(0)
        while not self.caps[0]:
            time.sleep(0.01)
        self._capped(spec, report, on)

    def close(self) -> None:
        """Nothing is to be ended."""

    def keep_apart(self, apart: TrialIsolation) -> None:
        """See `tests/execution/isolation`."""

    def give_back_memory(self) -> None:
        if self._between_trials is not None:
            self._between_trials()

    def _finish(self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent) -> None:
        for step in range(3):
            match report(step):
                case Verdict.PRUNE:
                    on_event(PrunedOutcome(spec.number, time.time(), step, float(step)))
                    return
                case Verdict.STOP:
                    on_event(InterruptedOutcome(spec.number, time.time(), "stopped"))
                    return
                case Verdict.GO_ON:
                    pass
        on_event(FinishedOutcome(spec.number, time.time(), float(os.getpid())))

    def _ask(self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent) -> None:
        """Reports what nobody judges, asks for `n`, and finishes with its value."""
        assert self._line is not None
        for step in range(2):
            on_event(MetricsReported(spec.number, time.time(), step, {"train_loss": 1.0}))
        reply = self._line.ask(ParamQuestion(spec.number, "n", {"low": 0, "high": 9}))
        if isinstance(reply, ParamAnswer):
            on_event(FinishedOutcome(spec.number, time.time(), float(str(reply.value))))
        else:
            on_event(InterruptedOutcome(spec.number, time.time(), repr(reply)))

    def _ask_while_it_logs(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        """As autolog and Optuna's interface do from threads of their own."""
        assert self._line is not None
        has_ended = threading.Event()

        def log() -> None:
            while not has_ended.is_set():
                on_event(TrialTagged(spec.number, time.time(), "note", "still here"))

        thread = threading.Thread(target=log, daemon=True)
        thread.start()
        question = ParamQuestion(spec.number, "n", {"low": 0, "high": 9})
        n_given = sum(isinstance(self._line.ask(question), ParamAnswer) for _ in range(100))
        has_ended.set()
        thread.join()
        on_event(FinishedOutcome(spec.number, time.time(), float(n_given)))

    def _ask_whether(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        """Reports, and asks after each report whether to go on."""
        assert self._line is not None
        for step in range(3):
            told = report(step)
            if Verdict.PRUNE in (told, self._line.verdict(spec.number)):
                on_event(PrunedOutcome(spec.number, time.time(), step, 0.0))
                return
        on_event(FinishedOutcome(spec.number, time.time(), 0.0))

    def _tag_and_finish(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        report(0)
        on_event(TrialTagged(spec.number, time.time(), "note", "in a message of its own"))
        on_event(FinishedOutcome(spec.number, time.time(), 1.0))

    def _tell_of_table(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        table: Any = self.config
        on_event(TrialTagged(spec.number, time.time(), "sum", str(table.sum())))
        on_event(
            TrialTagged(spec.number, time.time(), "may be written", str(table.flags.writeable))
        )
        on_event(FinishedOutcome(spec.number, time.time(), 1.0))

    def _report_and_hang(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        for step in range(3):
            report(step)
        time.sleep(3600)

    def _report_without_pause(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        """For three seconds."""
        begun, step = time.monotonic(), 0
        while time.monotonic() < begun + 3.0:
            report(step)
            step += 1
        on_event(FinishedOutcome(spec.number, time.time(), 1.0))

    def _joined_late(self, first: TrialSpec, feed: TrialSource, on_events: OnEvents) -> None:
        """Another trial joins after so many seconds; both report until they are ended."""
        lanes, begun = [first], time.monotonic()
        joins_after_seconds = float(str(first.params["seconds"]))
        for step in itertools.count():
            on_events([_report(spec, step) for spec in lanes])
            time.sleep(0.01)  # else the reports take two cores
            if len(lanes) == 1 and time.monotonic() > begun + joins_after_seconds:
                second = feed.next()
                assert second is not None
                lanes.append(second)

    def _say_for_ever(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        """For three seconds, without a report."""
        begun = time.monotonic()
        while time.monotonic() < begun + 3.0:
            logging.getLogger("automl.objectives").warning("still here")
        on_event(FinishedOutcome(spec.number, time.time(), 1.0))

    def _break_after(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        """The worker fails after this trial, while a thread of the objective's lives."""
        threading.Thread(target=threading.Event().wait).start()
        self._between_trials = _fail
        self._finish(spec, report, on_event)

    def _hang_after(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        """The worker never comes back from what it does after this trial."""
        self._between_trials = lambda: time.sleep(3600)
        self._finish(spec, report, on_event)

    def _until_stopped(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        step = 0
        while report(step) is Verdict.GO_ON:
            time.sleep(0.001)
            step += 1
        on_event(InterruptedOutcome(spec.number, time.time(), "stopped"))

    def _fail(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        on_event(FailedOutcome(spec.number, time.time(), "ValueError: scripted"))

    def _die(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _hold_memory(
        self, spec: TrialSpec, report: Callable[[int], Verdict], on_event: OnEvent
    ) -> None:
        self.held = 2**30
        self._finish(spec, report, on_event)

    def _hang(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        time.sleep(3600)

    def _print(self, spec: TrialSpec, report: object, on_event: OnEvent) -> None:
        os.write(1, b"said by the trial\n")
        on_event(FailedOutcome(spec.number, time.time(), "ValueError: after printing"))


def _report(spec: TrialSpec, step: int) -> MetricsReported:
    return MetricsReported(spec.number, time.time(), step, {"val_loss": float(step)})


def _fail() -> None:
    raise RuntimeError("the driver is gone")


def open_scripted(config: object) -> ScriptedSession:
    return ScriptedSession(config)
