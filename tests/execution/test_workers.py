"""What only worker processes do: packs over a pipe, time-outs, recycling, dying with the parent."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from automl.errors import StorageError
from automl.execution.executor import TrialFeed
from automl.execution.process import WorkerLimits
from automl.execution.workers import WorkersExecutor
from automl.trial import (
    Entry,
    Failed,
    Finished,
    Hosted,
    Interrupted,
    Outcome,
    OutOfMemory,
    ProcessId,
    Reported,
    TrialEvent,
    TrialSpec,
    Verdict,
)
from tests.places import ON_HOST, placed

ENTRY = Entry("tests.execution.objectives:open_scripted")
HOST = ON_HOST


def spec(number: int, act: str = "finish") -> TrialSpec:
    return TrialSpec(number, {"act": act}, "", 0)


def execute(
    path: Path, specs: Sequence[TrialSpec], limits: WorkerLimits | None = None
) -> list[TrialEvent]:
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    executor = WorkersExecutor(ENTRY, path, limits or WorkerLimits(max_workers=1))
    try:
        executor.execute(TrialFeed(specs, lambda taken: None), HOST, on_events)
    finally:
        executor.close()
    return events


def outcomes(events: Sequence[TrialEvent]) -> dict[int, Outcome]:
    return {event.trial: event for event in events if isinstance(event, Outcome)}


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether it came to hold within so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_pack_gets_all_its_trials(tmp_path: Path) -> None:
    ended = outcomes(execute(tmp_path, [spec(n) for n in (4, 7, 9)]))
    assert sorted(ended) == [4, 7, 9]
    assert all(isinstance(o, Finished) and o.value == 3.0 for o in ended.values())


def test_a_pack_that_dies_is_dissolved(tmp_path: Path) -> None:
    ended = outcomes(execute(tmp_path, [spec(0), spec(1, "die"), spec(2)]))
    assert isinstance(ended[0], Finished)
    broken = ended[1]
    assert isinstance(broken, Interrupted)
    assert broken.pack_dissolved
    assert broken.cause == "its pack broke: its process died: SIGKILL"
    assert not broken.by_worker_death
    assert 2 not in ended, "never taken from the feed"


@pytest.mark.parametrize(
    ("counts", "act", "outcome", "how"),
    [
        ((3, 4), "die", OutOfMemory, "SIGKILL by the kernel, for lack of main memory"),
        ((3, 3), "die", Interrupted, "SIGKILL"),
        ((None, None), "die", Interrupted, "SIGKILL"),
        ((3, 4), "abort", Interrupted, "SIGABRT"),
    ],
)
def test_a_process_that_the_kernel_killed_for_memory_ran_out_of_it(
    tmp_path: Path, counts: tuple[int | None, int], act: str, outcome: type[Outcome], how: str
) -> None:
    """Only where the kernel says so: anybody may send a SIGKILL."""
    asked = iter(counts)
    last = counts[-1]
    limits = WorkerLimits(max_workers=1, n_oom_kills=lambda: next(asked, last))
    died = execute(tmp_path, [spec(0, act)], limits)[-1]
    assert isinstance(died, outcome)
    assert isinstance(died, OutOfMemory | Interrupted)
    assert died.cause == f"its process died: {how}"
    assert getattr(died, "by_worker_death", False) == (outcome is Interrupted)


def test_what_programs_hold_counts_as_their_workers_main_memory(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    sizes: list[int] = []

    def on_events(new: Sequence[TrialEvent]) -> dict[int, Verdict]:
        if isinstance(new[-1], Reported):
            while not (held := max(executor.held_bytes().values())) > 7 * 2**30:
                time.sleep(0.005)  # it is told ten times a second
            sizes.append(held)
        return {}

    executor.execute(TrialFeed([spec(0)], lambda taken: None), placed("GPU-a", 1), on_events)
    executor.close()
    assert sizes


@pytest.mark.parametrize(
    ("act", "count", "outcome"),
    [
        ("lose_program", 4, OutOfMemory),
        ("lose_program", 3, Interrupted),
        ("lose_gpu", 4, Interrupted),
    ],
)
def test_a_program_of_a_worker_that_the_kernel_killed_ran_out_of_memory(
    tmp_path: Path, act: str, count: int, outcome: type[Outcome]
) -> None:
    """A GPU that fails while the kernel kills somebody else's process has not."""
    asked = iter([3])
    limits = WorkerLimits(max_workers=1, n_oom_kills=lambda: next(asked, count))
    assert isinstance(execute(tmp_path, [spec(0, act)], limits)[-1], outcome)


@pytest.mark.parametrize("verdict", [Verdict.PRUNE, Verdict.STOP])
def test_a_trial_that_asks_between_reports_learns_its_verdict(
    tmp_path: Path, verdict: Verdict
) -> None:
    """The answer to its report comes after it went on; asking is told to nobody."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> dict[int, Verdict]:
        events.extend(new)
        return {0: verdict} if isinstance(new[-1], Reported) else {}

    executor.execute(TrialFeed([spec(0, "asks")], lambda taken: None), HOST, on_events)
    executor.close()
    assert [type(event) for event in events] == [Hosted, Reported, Interrupted]
    assert isinstance(events[-1], Interrupted)
    assert events[-1].cause == verdict.value


def test_what_workers_warn_of_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1, recycle_after_trials=1))
    for number in range(2):
        feed = TrialFeed([spec(number, "warn")], lambda taken: None)
        executor.execute(feed, HOST, lambda events: {})
    executor.close()
    assert [record.getMessage() for record in caplog.records] == ["batch_size is clipped"]


def test_a_full_disk_is_the_sweeps_trouble_not_the_trials(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No space left on device"):
        execute(tmp_path, [spec(0, "full_disk")])


def test_an_objective_that_cannot_be_opened_is_hopeless(tmp_path: Path) -> None:
    executor = WorkersExecutor(Entry("tests.execution:none"), tmp_path, WorkerLimits(1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    executor.execute(TrialFeed([spec(0)], lambda taken: None), HOST, on_events)
    executor.close()
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.hopeless
    assert "AttributeError" in failed.cause


def test_a_trial_that_a_pack_was_fed_has_its_time_too(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=0.5, silence_timeout_seconds=30.0)
    ended = outcomes(execute(tmp_path, [spec(0), spec(1, "hang")], limits))
    assert isinstance(ended[0], Finished)
    failed = ended[1]
    assert isinstance(failed, Failed)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"


def test_a_warm_worker_serves_one_execution_at_a_time(tmp_path: Path) -> None:
    """The third execution begins, and ends, while the second has the worker of the first."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=2))
    pids: list[ProcessId] = []

    def carry(number: int, meanwhile: Callable[[], None]) -> None:
        def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            for event in new:
                if isinstance(event, Hosted):
                    pids.append(event.process)
                    assert pids.count(event.process) <= 2, "shared"
                    meanwhile()
            return {}

        executor.execute(TrialFeed([spec(number)], lambda taken: None), HOST, on_events)

    with contextlib.closing(executor):
        carry(0, lambda: None)
        carry(1, lambda: carry(2, lambda: None))
    assert pids[0] == pids[1] != pids[2]


def test_a_new_worker_holds_nothing(tmp_path: Path) -> None:
    """Its slot is that of one which held memory to the last. Main memory it has some."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1, recycle_after_trials=1))
    held: list[int] = []
    on_host: list[bool] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        if isinstance(new[0], Hosted):
            for (device, _), size in executor.held_bytes().items():
                on_host.append(device.on_host)
                held.extend([] if device.on_host else [size])
        return {}

    gpu = placed("GPU-a", 0)
    for number, act in enumerate(["hold_memory", "finish"]):
        executor.execute(TrialFeed([spec(number, act)], lambda taken: None), gpu, on_events)
    executor.close()
    assert held == [0, 0]
    assert on_host == [False, True] * 2


def test_a_worker_whose_gpu_failed_is_not_used_again(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    pids: list[int] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        pids.extend(event.process.pid for event in new if isinstance(event, Hosted))
        return {}

    for number, act in enumerate(["lose_gpu", "finish", "finish"]):
        executor.execute(TrialFeed([spec(number, act)], lambda taken: None), HOST, on_events)
    executor.close()
    assert pids[0] != pids[1] == pids[2]


def test_a_worker_learns_its_caps_at_its_begin_and_while_it_runs(tmp_path: Path) -> None:
    """Those of another trial are none of its own, though it is in the same process."""
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(1))

    def value(number: int, act: str, on_report: Callable[[], None] = lambda: None) -> float:
        ended: list[TrialEvent] = []

        def on_events(events: Sequence[TrialEvent]) -> dict[int, Verdict]:
            ended.extend(events)
            if any(isinstance(event, Reported) for event in events):
                on_report()
            return {}

        executor.execute(TrialFeed([spec(number, act)], lambda spec: None), HOST, on_events)
        assert isinstance(ended[-1], Finished)
        return ended[-1].value

    def cap(number: int, size: int) -> None:
        executor.cap_memory({number: {HOST.devices[0]: size}})

    cap(0, 77)
    assert value(0, "capped") == 77
    assert value(1, "capped") == 0
    assert value(2, "capped_later", lambda: cap(2, 78)) == 78
    cap(3, 79)
    cap(4, 80)
    ended = [value(3, "capped"), value(4, "capped"), value(3, "capped")]
    assert ended == [79, 80, 0], "each its own until it ends"
    executor.close()


def test_steps_are_seen_while_a_trial_runs(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(1))
    seen: list[Mapping[int, int]] = []

    def on_events(events: Sequence[TrialEvent]) -> dict[int, Verdict]:
        if any(isinstance(event, Reported) for event in events):
            while executor.n_steps() != {3: 42}:  # written ten times a second
                time.sleep(0.01)
            seen.append(executor.n_steps())
            executor.cap_memory({3: {HOST.devices[0]: 78}})  # for which it waits
        return {}

    executor.execute(TrialFeed([spec(3, "capped_later")], lambda spec: None), HOST, on_events)
    assert seen == [{3: 42}]
    assert executor.n_steps() == {}, "nothing runs"
    executor.close()


def test_a_trial_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    failed = outcomes(execute(tmp_path, [spec(0, "hang")], limits))[0]
    assert isinstance(failed, Failed)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"


def test_a_time_out_is_seen_while_reports_keep_coming(tmp_path: Path) -> None:
    executor = WorkersExecutor(
        ENTRY, tmp_path, WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    )
    events: list[TrialEvent] = []

    def slower_than_the_trial(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        pause(0.2)
        return {}

    feed = TrialFeed([spec(0, "report_without_pause")], lambda taken: None)
    executor.execute(feed, HOST, slower_than_the_trial)
    executor.close()
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"
    steps = [event.step for event in events if isinstance(event, Reported)]
    assert steps == list(range(len(steps))), "all that it said until then counts"


def test_a_trial_that_only_warns_is_silent(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, silence_timeout_seconds=0.5)
    failed = outcomes(execute(tmp_path, [spec(0, "say_for_ever")], limits))[0]
    assert isinstance(failed, Failed)
    assert failed.cause == "reported nothing for execution.silence_timeout_seconds=0.5"


def test_of_a_pack_only_the_member_that_took_too_long_has_failed(tmp_path: Path) -> None:
    for seconds in (1, 5, 25):  # a busy machine may hold both up for longer than the one has left
        limits = WorkerLimits(max_workers=1, trial_timeout_seconds=seconds)
        first = TrialSpec(0, {"act": "joined_late", "seconds": seconds / 2}, "", 0)
        specs = [first, spec(1), spec(2)]
        ended = outcomes(execute(tmp_path / str(seconds), specs, limits))
        if isinstance(ended.get(1), Interrupted):
            break
    late, other = ended[0], ended[1]
    assert isinstance(late, Failed)
    assert late.cause == f"exceeded execution.trial_timeout_seconds={seconds}"
    assert isinstance(other, Interrupted)
    assert (other.pack_dissolved, other.by_worker_death) == (True, False)
    assert other.cause == f"its pack broke: trial 0 {late.cause}"
    assert 2 not in ended, "never taken from the feed"


def pause(seconds: float) -> None:
    """What takes the sweep so long."""
    threading.Event().wait(seconds)


def test_a_trial_that_the_sweep_killed_is_not_timed_out_after_it(tmp_path: Path) -> None:
    executor = WorkersExecutor(
        ENTRY, tmp_path, WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    )
    events: list[TrialEvent] = []

    def linger_and_kill(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if isinstance(new[0], Reported):
            pause(1.0)
            executor.kill("too late")  # its end is not seen at once
        return {}

    feed = TrialFeed([spec(0, "report_and_hang")], lambda taken: None)
    executor.execute(feed, HOST, linger_and_kill)
    executor.close()
    interrupted = events[-1]
    assert isinstance(interrupted, Interrupted)
    assert (interrupted.cause, interrupted.by_worker_death) == ("too late", False)


def test_a_trial_that_was_timed_out_is_not_interrupted_after_it(tmp_path: Path) -> None:
    executor = WorkersExecutor(
        ENTRY, tmp_path, WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    )
    events: list[TrialEvent] = []

    def linger_then_kill(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        if any(isinstance(event, Reported) for event in events):
            executor.kill("too late")
        events.extend(new)
        if isinstance(new[0], Reported):
            pause(1.0)
        return {}

    feed = TrialFeed([spec(0, "report_without_pause")], lambda taken: None)
    executor.execute(feed, HOST, linger_then_kill)
    executor.close()
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.cause == "exceeded execution.trial_timeout_seconds=0.5"


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("break_after", "RuntimeError: the driver is gone"),
        ("hang_after", "did not become idle within 0.5 s"),
    ],
)
def test_a_worker_that_fails_between_trials_is_not_waited_for(
    tmp_path: Path, act: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits = WorkerLimits(max_workers=1, idle_patience_seconds=0.5)
    executor = WorkersExecutor(ENTRY, tmp_path, limits)
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    def run() -> None:
        for number, what in enumerate([act, "finish"]):
            executor.execute(TrialFeed([spec(number, what)], lambda taken: None), HOST, on_events)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10.0)
    hangs = thread.is_alive()
    executor.kill("the test is over")
    thread.join()
    assert not hangs
    executor.close()
    assert [type(outcome) for outcome in outcomes(events).values()] == [Finished, Finished]
    pids = [event.process.pid for event in events if isinstance(event, Hosted)]
    assert pids[0] != pids[1]
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(f"worker {pids[0]} ")
    assert told in said


@pytest.mark.parametrize("n_trials", [1, 2], ids=["alone", "pack"])
def test_an_outcome_that_was_told_before_the_time_out_was_seen_counts(
    tmp_path: Path, n_trials: int
) -> None:
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=0.5)
    executor = WorkersExecutor(ENTRY, tmp_path, limits)
    events: list[TrialEvent] = []

    def linger_at_the_first(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        if isinstance(new[0], Reported) and not any(isinstance(e, Reported) for e in events):
            pause(1.0)
        events.extend(new)
        return {}

    feed = TrialFeed([spec(number) for number in range(n_trials)], lambda taken: None)
    executor.execute(feed, HOST, linger_at_the_first)
    assert {n: type(o) for n, o in outcomes(events).items()} == {0: Finished}
    assert (feed.next() is None) == (n_trials == 1), "a worker that was ended is fed nothing"
    executor.execute(TrialFeed([spec(5)], lambda taken: None), HOST, linger_at_the_first)
    executor.close()
    assert isinstance(events[-1], Finished), "in another worker"


def test_a_worker_is_replaced_after_so_many_trials(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1, recycle_after_trials=2))
    pids: list[ProcessId] = []

    def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        pids.extend(event.process for event in events if isinstance(event, Hosted))
        return {}

    for number in range(4):
        executor.execute(TrialFeed([spec(number)], lambda taken: None), HOST, on_events)
    executor.close()
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_idle_workers_that_are_ended_leave_room_for_others(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    pids: list[ProcessId] = []

    def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        pids.extend(event.process for event in events if isinstance(event, Hosted))
        return {}

    for number in range(2):
        executor.execute(TrialFeed([spec(number)], lambda taken: None), HOST, on_events)
        executor.end_idle(HOST.devices)
        assert not is_alive(pids[number].pid)
        assert executor.held_bytes() == {}
    executor.close()


def test_reports_that_nobody_waits_for_arrive_though_nothing_comes_after_them(
    tmp_path: Path,
) -> None:
    limits = WorkerLimits(max_workers=1, silence_timeout_seconds=1.0)
    events = execute(tmp_path, [spec(0, "report_and_hang")], limits)
    assert [event.step for event in events if isinstance(event, Reported)] == [0, 1, 2]
    assert isinstance(events[-1], Failed)


def test_a_stop_reaches_a_trial_that_waits_for_no_verdict(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if isinstance(new[0], Reported):
            executor.stop_trials()
        return {}

    executor.execute(TrialFeed([spec(0, "until_stopped")], lambda taken: None), HOST, on_events)
    executor.close()
    assert isinstance(events[-1], Interrupted)
    steps = [event.step for event in events if isinstance(event, Reported)]
    assert steps == list(range(len(steps))), "in order, none missing"


def test_a_trial_that_is_being_started_while_all_are_killed_ends_with_them(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    executor.kill("too late")
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    feed = TrialFeed([spec(0, "report_without_pause")], lambda taken: None)
    executor.execute(feed, HOST, on_events)
    executor.close()
    assert isinstance(events[-1], Interrupted)
    assert events[-1].cause == "too late"


def test_killing_ends_a_running_trial(tmp_path: Path) -> None:
    executor = WorkersExecutor(ENTRY, tmp_path, WorkerLimits(max_workers=1))
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        if isinstance(new[0], Hosted):
            executor.kill("too late")
        return {}

    executor.execute(TrialFeed([spec(0, "hang")], lambda taken: None), HOST, on_events)
    executor.close()
    interrupted = events[-1]
    assert isinstance(interrupted, Interrupted)
    assert (interrupted.cause, interrupted.by_worker_death) == ("too late", False)


def test_killing_ends_a_trial_that_is_just_beginning(tmp_path: Path) -> None:
    limits = WorkerLimits(max_workers=1, trial_timeout_seconds=5)  # in which it would have failed
    executor = WorkersExecutor(ENTRY, tmp_path, limits)
    events: list[TrialEvent] = []

    def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(new)
        return {}

    executor.kill("too late")
    executor.execute(TrialFeed([spec(0, "hang")], lambda taken: None), HOST, on_events)
    executor.close()
    interrupted = events[-1]
    assert isinstance(interrupted, Interrupted)
    assert (interrupted.cause, interrupted.by_worker_death) == ("too late", False)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="by a watching thread elsewhere")
def test_nothing_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)], cwd=Path(__file__).parents[2]
    )
    output = tmp_path / "trial-00000.log"
    assert wait_until(lambda: output.exists() and output.stat().st_size > 0, 60), "never started"
    pids = [int(word) for word in output.read_text().split()]
    assert len(pids) == 2, "the worker and its child"
    assert all(map(is_alive, pids))
    parent.kill()
    parent.wait()
    assert wait_until(lambda: not any(map(is_alive, pids)), 2.0)


_PARENT = """
import sys
from pathlib import Path
from automl.execution.executor import TrialFeed
from automl.execution.process import WorkerLimits
from automl.execution.workers import WorkersExecutor
from tests.execution.test_workers import ENTRY, HOST, spec
from tests.places import ON_HOST, placed
if __name__ == "__main__":
    executor = WorkersExecutor(ENTRY, Path(sys.argv[1]), WorkerLimits(max_workers=1))
    feed = TrialFeed([spec(0, "fork_and_hang")], lambda taken: None)
    executor.execute(feed, HOST, lambda events: {})
"""
