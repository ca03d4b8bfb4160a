"""Compares what `gain` says of a trial's time with what trials of a sweep then take.

Both are taken as CPU time, since a machine that others use stretches what the clock on the wall
says, and as that: what `gain` itself says and the event log tells.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.commands.gain import sizes_to_time
from automl.execution.child_calls import ProcessConfinement, stream_confined
from automl.execution.worker_process import preload_fork_server
from automl.measure.gain.gain_messages import GainSetup, TrainingTiming, TrainingWay
from automl.record.event_log import read_events
from automl.record.study_files import StudyFiles
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.trials.step_timing import TrialSize, ways_to_time
from automl.trial import (
    LOCAL_HOST,
    DeviceShare,
    FinishedOutcome,
    Placement,
    ProcessEntry,
    TrialStarted,
)

HERE = Path(__file__).resolve().parent
KEEP = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
LOOK_SECONDS = 0.02
CLOCKS = ("cpu", "wall")
ON_HOST = Placement((DeviceShare(LOCAL_HOST, "cpu", 0),))


@dataclass
class Seconds:
    """Of one trial, by clock."""

    cpu: float
    wall: float


def main() -> None:
    options = _options()
    prepared = prepare_study(
        compose_command(parse_command_line(["gain", *options.override])).config
    )
    preload_fork_server("automl.measure.gain.child")
    ratios: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for n in range(options.rounds):
        for size in sizes_to_time(prepared):
            for way in _ways(prepared, size):
                before = _said(prepared, size, way)
                took = _taken(options.override, size, way, options.trials)
                after = _said(prepared, size, way)
                trial = "alone" if way.n_lanes == 1 else f"pack of {way.n_lanes}"
                for clock in CLOCKS:
                    said = (getattr(before, clock) + getattr(after, clock)) / 2
                    seconds = getattr(took, clock)
                    ratios[size.name, trial, clock].append(said / seconds)
                    _say(
                        f"{n} {size.name:7} {trial:10} {clock:4} said {said:.4f} s, took "
                        f"{seconds:.4f} s: {said / seconds:.2f}; load {os.getloadavg()[0]:.1f}"
                    )
    _say("| size | trial | clock | said / taken, median | each |\n|---|---|---|---|---|")
    for key, found in ratios.items():
        every = ", ".join(f"{ratio:.2f}" for ratio in found)
        _say(f"| {' | '.join(key)} | {median(found):.2f} | {every} |")


def _ways(prepared: PreparedStudy, size: TrialSize) -> list[TrainingWay]:
    """Alone, and in the largest pack where there is one."""
    found = ways_to_time(prepared.plan, size.params, on_host=True, n_cores=1, pack="auto")
    packed = max(found, key=lambda way: way.n_lanes)
    return [found[0], packed] if packed.n_lanes > 1 else [found[0]]


# --- what `gain` says -----------------------------------------------------------------------------


def _said(prepared: PreparedStudy, size: TrialSize, way: TrainingWay) -> Seconds:
    """As the command's own process tells it, by either clock."""
    return Seconds(*(_timed(prepared, size, way, clock) for clock in CLOCKS))


def _timed(prepared: PreparedStudy, size: TrialSize, way: TrainingWay, clock: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        setup = GainSetup(prepared.setup, size.params, (way,), ON_HOST, 1.5, folder)
        entry = ProcessEntry(f"clocks:time_by_{clock}", setup)
        limits = ProcessConfinement(seconds=60.0, niceness=0)
        with closing(stream_confined(entry, limits)) as stream:
            timings = [timing for timing in stream if isinstance(timing, TrainingTiming)]
    assert timings[-1].trial_seconds is not None, timings[-1].trouble
    return timings[-1].trial_seconds


# --- what a sweep takes ---------------------------------------------------------------------------


def _taken(overrides: Sequence[str], size: TrialSize, way: TrainingWay, n_each: int) -> Seconds:
    """Of a trial in a sweep of such trials, apart from the first, or from the first pack, which a
    new process begins with."""
    n = way.n_lanes + max(n_each, way.n_lanes)
    pack = "off" if way.n_lanes == 1 else str(way.n_lanes)
    enqueued = json.dumps([dict(size.params)] * n).replace('"', "")
    words = [
        *overrides, "study.name=check", f"study.n_trials={n}", "pruner=none", "sampler=random",
        "admission.max_concurrent_trials=1", "tracking.checkpoints=none",
        f"execution.pack={pack}", f"study.enqueue={enqueued}",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "automl", *words]
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **KEEP}, stdout=subprocess.DEVNULL
        )
        looks = Looks(process.pid)
        assert process.wait() == 0
        begun, ended = _times(Path(folder))
    looks.thread.join()
    numbers = sorted(ended)[way.n_lanes :]
    first, last = min(begun[i] for i in numbers), max(ended[i] for i in numbers)
    cpu = (looks.cpu_at(last) - looks.cpu_at(first)) / len(numbers)
    if way.n_lanes > 1:
        return Seconds(cpu, (last - first) / len(numbers))
    return Seconds(cpu, median(ended[i] - begun[i] for i in numbers))


def _times(folder: Path) -> tuple[Mapping[int, float], Mapping[int, float]]:
    """When each trial began and ended, Unix seconds."""
    begun, ended = {}, {}
    for event, _ in read_events(StudyFiles(folder / "studies" / "check").events):
        if isinstance(event, TrialStarted):
            begun[event.trial] = event.time
        elif isinstance(event, FinishedOutcome):
            ended[event.trial] = event.time
    return begun, ended


@dataclass
class Looks:
    """CPU time of the worker of a sweep, looked at until the sweep ends (Linux)."""

    sweep: int
    seen: list[tuple[float, float]] = field(default_factory=list)
    """Unix seconds, and the CPU seconds of the worker by then."""

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def cpu_at(self, moment: float) -> float:
        at = min(bisect_left(self.seen, (moment, 0.0)), len(self.seen) - 1)
        return self.seen[at][1]

    def _look(self) -> None:
        worker: int | None = None
        while Path(f"/proc/{self.sweep}/schedstat").exists():
            time.sleep(LOOK_SECONDS)
            worker = worker or next(_workers(self.sweep), None)
            if worker is not None and (cpu := _cpu_seconds(worker)) > 0:
                self.seen.append((time.time(), cpu))


def _workers(sweep: int) -> Iterator[int]:
    """Leaders of their own sessions whose parent, the fork server, is the child of the sweep."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        pid = int(path.parent.name)
        if os.getsid(0) != pid and _parent(_parent(pid)) == sweep and _session(pid) == pid:
            yield pid


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _session(pid: int) -> int:
    return int(_fields(pid)[3])


def _fields(pid: int) -> Sequence[str]:
    """Of /proc/PID/stat, after the name."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "0", "0", "0", "0"


def _cpu_seconds(pid: int) -> float:
    """Of all its threads; 0 when it has ended."""
    try:
        stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        return 0.0
    return sum(int(stat.split()[0]) for stat in stats) / 1e9


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("override", nargs="*", default=["data=digits"], help="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=20, help="of each size, one by one")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":  # worker processes import this module again
    main()
