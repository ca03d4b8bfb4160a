"""Lets faults strike the same sweep in several libraries, and counts what each has lost.

    python experiments/025-faults/faults.py LIBRARY [--kills 20] [--damages 20] [--calls 10]

LIBRARY is automl, optuna-sqlite, optuna-journal or ray. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

sys.path.insert(0, str(Path(__file__).parent))

import sweeps

MARK = "FAULTS_MARK"
"""A variable of the environment that all processes of a sweep inherit."""
LIMIT_SECONDS = 120.0
STATE_FILES = {
    "automl": ("studies/faults/events.log", "studies/faults/journal.log"),
    "optuna-sqlite": ("optuna.db",),
    "optuna-journal": ("optuna.log",),
}
CALLS = ("write", "pwrite64", "fsync", "fdatasync")
Reports = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class KeptStudy:
    """What a library has of a study."""

    reports: Reports
    """The value of each report, by trial and step."""
    states: Mapping[str, str]
    """`finished`, `running` or another state of each trial."""


def read_acks(folder: Path) -> list[tuple[str, int, float]]:
    if not (folder / "acks").exists():
        return []
    lines = [line.split() for line in (folder / "acks").read_text().splitlines()]
    return [(trial, int(step), float(value)) for trial, step, value in lines]


def read_kept(library: str, folder: Path) -> KeptStudy:
    """Read the study with the library's own functions."""
    if library == "automl":
        from automl.record.event_log import read_events
        from automl.record.studies import read_study
        from automl.trial import MetricsReported

        study = folder / "studies" / "faults"
        if not (study / "events.log").exists():
            return KeptStudy({}, {})
        found = [e for e, _ in read_events(study / "events.log") if isinstance(e, MetricsReported)]
        reports = {(str(e.trial), e.step): e.metrics["val_loss"] for e in found}
        trials = read_study(study).trials
        return KeptStudy(reports, {str(n): trial.state.value for n, trial in trials.items()})
    if library == "ray":
        return read_ray(folder)
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = sweeps.optuna_url(library, folder)
    if "faults" not in optuna.get_all_study_names(storage):
        return KeptStudy({}, {})
    stored = optuna.load_study(study_name="faults", storage=storage).trials
    names = {"COMPLETE": "finished", "RUNNING": "running"}
    return KeptStudy(
        {(str(t.number), s): v for t in stored for s, v in t.intermediate_values.items()},
        {str(t.number): names.get(t.state.name, t.state.name.lower()) for t in stored},
    )


def read_ray(folder: Path) -> KeptStudy:
    where = folder / "results" / "faults"
    reports: dict[tuple[str, int], float] = {}
    for file in where.glob("*/result.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            reports[row["trial_id"], row["step"]] = row["val_loss"]
    states = {}
    for file in sorted(where.glob("experiment_state-*.json"))[-1:]:
        for text, _ in json.loads(file.read_text())["trial_data"]:
            trial = json.loads(text)
            states[trial["trial_id"]] = trial["status"].lower().replace("terminated", "finished")
    return KeptStudy(reports, states)


class Sweep:
    """One process of a sweep, and all that it has started."""

    def __init__(self, library: str, folder: Path, *words: str, **more: str) -> None:
        self.mark = uuid.uuid4().hex
        script = str(Path(__file__).with_name("sweeps.py"))
        environment = {**os.environ, MARK: self.mark, **more}
        with (folder / "said").open("ab") as said:
            self.process = subprocess.Popen(
                [*words, sys.executable, script, library, str(folder)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def left(self) -> list[int]:
        """Return the processes of the sweep that live."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    is_ours = f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                except OSError:
                    continue
                if is_ours:
                    found.append(int(entry.name))
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def wait(self) -> int | None:
        """Wait for its end; return None if it hangs."""
        try:
            return self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.end()


def killed_while_it_reports(sweep: Sweep, folder: Path, n_more: int) -> bool:
    """Kill the sweep after so many acknowledged metrics; return False if it ended before."""
    n_before, deadline = len(read_acks(folder)), time.monotonic() + LIMIT_SECONDS
    while len(read_acks(folder)) < n_before + n_more:
        if sweep.process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.003)
    sweep.kill()
    return True


def n_lost(library: str, folder: Path) -> int:
    kept = read_kept(library, folder).reports
    return sum(kept.get((trial, step)) != value for trial, step, value in read_acks(folder))


def try_kills(library: str, n_kills: int) -> None:
    """Kill sweeps, two kills each, and go on; count what was lost, done twice, left."""
    chance, told = random.Random(1), Counter[str]()
    while told["kills"] < n_kills:
        folder = Path(mkdtemp(prefix="faults-"))
        for _ in range(2):
            sweep = Sweep(library, folder, GRANDCHILD="1")
            told["kills"] += killed_while_it_reports(sweep, folder, chance.randint(3, 25))
            told["acknowledged metrics not stored at the kill"] += n_lost(library, folder)
            time.sleep(3)
            told["kills that left processes after 3 s"] += bool(sweep.left())
            sweep.end()
        told["sweeps"] += 1
        code = Sweep(library, folder).wait()
        told["sweeps that did not end well"] += code != 0
        told["acknowledged metrics lost in the end"] += n_lost(library, folder)
        kept = read_kept(library, folder)
        finished = sum(state == "finished" for state in kept.states.values())
        told["sweeps with exactly n finished trials"] += finished == sweeps.N_TRIALS
        told["sweeps with exactly n trials in all"] += len(kept.states) == sweeps.N_TRIALS
        told["trials left RUNNING"] += sum(s == "running" for s in kept.states.values())
        told["epochs trained"] += len(read_acks(folder))
        told["epochs wanted"] += sweeps.N_TRIALS * sweeps.N_EPOCHS
        shutil.rmtree(folder)
    for name, n in told.items():
        say(library, name, n)


def damages(size: int, n: int) -> Iterator[tuple[str, int]]:
    chance = random.Random(2)
    for _ in range(n):
        yield "torn", chance.randrange(max(0, size - 4096), size)
        yield "flipped", chance.randrange(size)


def try_damages(library: str, n_damages: int) -> None:
    """Damage each state file of an ended study; read it and go on."""
    whole = Path(mkdtemp(prefix="faults-"))
    Sweep(library, whole).wait()
    before = read_kept(library, whole)
    told = Counter[str]()
    for name in STATE_FILES[library]:
        for how, place in damages((whole / name).stat().st_size, n_damages):
            folder = Path(mkdtemp(prefix="faults-")) / "damaged"
            shutil.copytree(whole, folder)
            data = bytearray((folder / name).read_bytes())
            if how == "torn":
                del data[place:]
            else:
                data[place] ^= 1 << (place % 8)
            (folder / name).write_bytes(data)
            (folder / "said").unlink()
            told[f"{how}: {_effect(library, folder, before, how)}"] += 1
            shutil.rmtree(folder.parent)
    shutil.rmtree(whole)
    for name, n in sorted(told.items()):
        say(library, name, n)


def _effect(library: str, folder: Path, before: KeptStudy, how: str) -> str:
    code = Sweep(library, folder).wait()
    said = (folder / "said").read_text(errors="replace")
    if code is None:
        return "it hangs"
    if "Traceback" in said:
        sys.stderr.write(said)
        return "a traceback"
    if code != 0:
        return "refused with a message"
    try:
        after = read_kept(library, folder)
    except Exception:  # noqa: BLE001 - whatever the library raises
        return "it goes on, and cannot be read"
    wrong = [
        key for key, value in after.reports.items() if before.reports.get(key) not in (value, None)
    ]
    if wrong:
        return "silently another value"
    gone = [trial for trial in before.states if after.states.get(trial) != "finished"]
    if how == "flipped" and gone:
        return "silently without a trial"
    if sum(state == "finished" for state in after.states.values()) != sweeps.N_TRIALS:
        return "not n finished trials"
    return "goes on, n trials"


def try_calls(library: str, n_calls: int) -> None:
    """Let the k-th call on the storage fail once with EIO, for some k of each call."""
    told = Counter[str]()
    for call in CALLS:
        for k in (1, 2, 5, 9, 15, 30, 60, 90, 120, 150)[:n_calls]:
            folder = Path(mkdtemp(prefix="faults-"))
            paths = [str(folder / name) for name in STATE_FILES[library]]
            paths += [f"{path}{end}" for path in paths for end in ("-journal", "-wal")]
            watched = [word for path in paths for word in ("-P", path)]
            trace = str(folder / "trace")
            inject = f"inject={call}:error=EIO:when={k}"
            tracer = (
                "strace",
                "-f",
                "-q",
                "-o",
                trace,
                *watched,
                "-e",
                f"trace={call}",
                "-e",
                inject,
            )
            code = Sweep(library, folder, *tracer).wait()
            if "(INJECTED)" in Path(trace).read_text():
                told["calls that failed"] += 1
                said = (folder / "said").read_text(errors="replace")
                told["hangs"] += code is None
                told["tracebacks"] += "Traceback" in said
                told["acknowledged metrics not stored then"] += n_lost(library, folder)
                (folder / "said").unlink()
                again = Sweep(library, folder).wait()
                told["does not go on afterwards"] += again != 0
                if again == 0:
                    states = read_kept(library, folder).states.values()
                    told["trials left RUNNING"] += sum(s == "running" for s in states)
            shutil.rmtree(folder)
    for name, n in told.items():
        say(library, name, n)


def say(*cells: object) -> None:
    sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["automl", "optuna-sqlite", "optuna-journal", "ray"])
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--damages", type=int, default=0)
    parser.add_argument("--calls", type=int, default=0)
    args = parser.parse_args()
    if args.kills:
        try_kills(args.library, args.kills)
    if args.damages and args.library in STATE_FILES:
        try_damages(args.library, args.damages)
    if args.calls and args.library in STATE_FILES:
        try_calls(args.library, args.calls)


if __name__ == "__main__":
    main()
