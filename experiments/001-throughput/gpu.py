"""The small trials on a GPU, in each way that a sweep can run them: which default does it suggest?

Whole sweeps one after another, each at most its share of the time that is left, so that the whole
keeps to `--budget-seconds`. A sweep that would need longer starts no more trials after a part of
its share; its rate is that of the trials that finished. Counts and times are read from the event
log, which a sweep that was killed leaves too. Then packs by width and lanes (`002-packs/lanes.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from whole_process import (
    ProcessFailedError,
    fresh_folder,
    ours,
    parent_folder,
    run,
    script,
    write,
)

from automl.config import DevicesConfig
from automl.devices.device_reader import open_device_reader
from automl.devices.device_reading import DeviceReader, DeviceReadError, DeviceSnapshot
from automl.record.event_log import read_events
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    OutOfMemoryOutcome,
    TrialOutcome,
    TrialStarted,
)

_LANES = "../002-packs/lanes.py"
_LANES_SHARE, _LANES_MOST_SECONDS = 0.2, 60.0
_ASKING_SHARE = 0.5
"""Of a sweep's time it starts trials; the rest is for start-up, the last trials and MLflow."""
_SAMPLE_SECONDS = 0.05
_STUDY = "gpu"


def modes(n_at_once: int) -> dict[str, tuple[str, ...]]:
    """The settings of each way, by its name."""
    one, many = (f"admission.max_concurrent_trials={n}" for n in (1, n_at_once))
    return {
        "one at a time": ("execution=workers", "execution.pack=off", one),
        f"{n_at_once} workers at once": ("execution=workers", "execution.pack=off", many),
        f"{n_at_once} inline threads at once": ("execution=inline", many),
        f"{n_at_once} packs at once": ("execution=workers", "execution.pack=auto", many),
    }


@dataclass(frozen=True)
class Counts:
    """What the event log of a study says."""

    n_finished: int
    n_failed: int
    n_out_of_memory: int
    """Times that a trial ran out of memory; each went on with a larger reservation."""
    n_dissolved: int
    """Trials whose pack broke; each went on alone."""
    trials_seconds: float | None
    """From the first trial's start to the last one's end; None: none has finished."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> Counts:
        starts, outcomes = [], []
        for event in events:
            if isinstance(event, TrialStarted):
                starts.append(event.time)
            elif isinstance(event, TrialOutcome):
                outcomes.append(event)
        ends = [outcome.time for outcome in outcomes if isinstance(outcome, FinishedOutcome)]
        return cls(
            n_finished=len(ends),
            n_failed=sum(isinstance(o, FailedOutcome) for o in outcomes),
            n_out_of_memory=sum(isinstance(o, OutOfMemoryOutcome) for o in outcomes),
            n_dissolved=sum(
                isinstance(o, InterruptedOutcome) and o.pack_dissolved for o in outcomes
            ),
            trials_seconds=max(ends) - min(starts) if ends else None,
        )


@dataclass(frozen=True)
class Result:
    """One sweep."""

    mode: str
    n_trials: int
    counts: Counts
    whole_seconds: float
    peak_bytes: int | None
    """The most GPU memory in use, above what was before; None: no GPU."""
    trouble: str
    """Why it ended before all trials did; empty: it did not."""

    @property
    def rate(self) -> float | None:
        """Finished trials per second of the study."""
        seconds = self.counts.trials_seconds
        return self.counts.n_finished / seconds if seconds else None


@contextlib.contextmanager
def watched(reader: DeviceReader) -> Iterator[list[int]]:
    """Samples, in a thread, of the bytes in use on all GPUs that a sweep may use, until its end."""
    used: list[int] = []
    ended = threading.Event()

    def sample() -> None:
        with contextlib.suppress(DeviceReadError):
            if gpus := gpus_of(reader):
                used.append(sum(gpu.total_bytes - gpu.free_bytes for gpu in gpus))

    def run_on() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            sample()

    sample()
    thread = threading.Thread(target=run_on, name="memory-watch", daemon=True)
    thread.start()
    try:
        yield used
    finally:
        ended.set()
        thread.join()


def gpus_of(reader: DeviceReader) -> list[DeviceSnapshot]:
    """What it reads, but for the host."""
    return [device for device in reader.read() if not device.address.on_host]


def measure(
    mode: str, settings: Sequence[str], n_trials: int, seconds: float, args: argparse.Namespace
) -> Result:
    """One sweep in an empty folder, killed after `seconds`."""
    command = ours(
        "throughput",
        *settings,
        f"study.name={_STUDY}",
        f"study.n_trials={n_trials}",
        f"study.timeout_seconds={_ASKING_SHARE * seconds:.1f}",
        f"devices={args.device}",
    )
    trouble = ""
    with fresh_folder(args.work) as folder:
        with contextlib.closing(open_devices(args.device)) as reader, watched(reader) as used:
            began = time.perf_counter()
            try:
                run(command, folder, timeout_seconds=seconds)
            except ProcessFailedError as error:
                trouble = str(error)
            whole_seconds = time.perf_counter() - began
        log = folder / "studies" / _STUDY / "events.log"
        counts = Counts.of(event for event, _ in read_events(log))
    if not trouble and counts.n_finished + counts.n_failed < n_trials:
        trouble = "time limit"
    peak_bytes = max(used) - used[0] if used else None
    return Result(mode, n_trials, counts, whole_seconds, peak_bytes, trouble)


def open_devices(kind: str) -> DeviceReader:
    """The devices that the sweeps will use."""
    return open_device_reader(DevicesConfig("cpu" if kind == "host" else kind))


def lanes(device: str, seconds: float, folder: Path) -> str:
    """What `lanes.py` prints, and why it ended early if it did."""
    limit = ("--budget-seconds", f"{0.8 * seconds:.0f}")
    command = script(sys.executable, _LANES, "--device", device, *limit)
    trouble = ""
    try:
        run(command, folder, timeout_seconds=seconds)
    except ProcessFailedError as error:
        trouble = in_short(str(error))
    return (folder / "output.txt").read_text() + trouble


_COLUMNS = (
    "way",
    "trials",
    "finished",
    "whole process s",
    "trials/s",
    "peak GPU MiB",
    "failed",
    "out of memory",
    "packs' trials gone alone",
    "ended early",
)


def table(results: Sequence[Result]) -> str:
    """A line per sweep; `-` where there is no figure."""
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for r in results:
        cells = (
            r.mode,
            f"{r.n_trials}",
            f"{r.counts.n_finished}",
            f"{r.whole_seconds:.1f}",
            "-" if r.rate is None else f"{r.rate:.2f}",
            "-" if r.peak_bytes is None else f"{r.peak_bytes / 2**20:.0f}",
            f"{r.counts.n_failed}",
            f"{r.counts.n_out_of_memory}",
            f"{r.counts.n_dissolved}",
            in_short(r.trouble),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def in_short(trouble: str) -> str:
    """How a process ended and the last that it said, for a cell."""
    how, last = trouble.partition(":")[0], trouble.strip().rpartition("\n")[2]
    words = last if last.startswith(how) else f"{how}: {last}"
    return words.replace("|", "/")[:120]


def suggestion(results: Sequence[Result], settings: Mapping[str, Sequence[str]]) -> str:
    """The way with the highest rate, by the largest study in which trials finished."""
    rates = {(r.n_trials, r.mode): r.rate for r in results if r.rate is not None}
    if not rates:
        return "No trial finished: nothing is suggested."
    most = max(n_trials for n_trials, _ in rates)
    ranked = sorted(((rate, mode) for (n, mode), rate in rates.items() if n == most), reverse=True)
    (_, best), others = ranked[0], "; ".join(f"{mode} {rate:.2f}" for rate, mode in ranked[1:])
    return (
        f"By the studies of {most} trials the default would be: {best} ({' '.join(settings[best])})"
        f", {ranked[0][0]:.2f} trials/s; {others or 'no other way finished a trial'}."
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--trials", type=int, nargs="+", default=[64, 1024])
    arguments.add_argument("--at-once", type=int, default=8, help="trials or packs side by side")
    arguments.add_argument("--budget-seconds", type=float, default=540)
    arguments.add_argument("--device", choices=["auto", "host"], default="auto")
    arguments.add_argument("--work", type=parent_folder, help="folder whose disk is used")
    arguments.add_argument("--json", type=Path, help="file for the raw figures")
    args = arguments.parse_args()
    deadline = time.monotonic() + args.budget_seconds
    with contextlib.closing(open_devices(args.device)) as reader:
        gpus = gpus_of(reader)
    if args.device == "auto" and not gpus:
        arguments.error("there is no GPU that NVML and torch can use; a dry run: --device host")
    write("On: " + (", ".join(gpu.name for gpu in gpus) or "the host, as a dry run"))
    sweeps_deadline = deadline - min(_LANES_SHARE * args.budget_seconds, _LANES_MOST_SECONDS)
    settings, results = modes(args.at_once), list[Result]()
    todo = [(n_trials, mode) for n_trials in sorted(args.trials) for mode in settings]
    for i, (n_trials, mode) in enumerate(todo):
        seconds = (sweeps_deadline - time.monotonic()) / (len(todo) - i)
        results.append(measure(mode, settings[mode], n_trials, max(1.0, seconds), args))
        done = f"{results[-1].counts.n_finished} of {n_trials} in {results[-1].whole_seconds:.1f} s"
        write(f"{mode}: {done} {in_short(results[-1].trouble)}".rstrip())
        if args.json is not None:  # after each, so that it may be cut short
            raw = [asdict(result) for result in results]
            args.json.write_text(json.dumps(raw, indent=1) + "\n")
    write(f"\n{table(results)}\n\n{suggestion(results, settings)}\n")
    with fresh_folder(args.work) as folder:
        device = "cuda:0" if gpus else "cpu"
        write(lanes(device, max(1.0, deadline - time.monotonic()), folder))


if __name__ == "__main__":
    main()
