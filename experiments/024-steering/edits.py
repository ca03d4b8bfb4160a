"""How soon a running sweep does what commands ask for, and what looking for requests costs it.

A sweep runs trials of half a second, one at a time. It is edited five times, and paused and resumed
five times. With the URL of an empty database two such sweeps share the study, and the seconds are
those from the request on, without the start of a command. Called as

    python experiments/024-steering/edits.py [postgresql://…]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from automl.config import StudyConfig
from automl.record.event_log import decode_event, read_events
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.shared_requests import SharedRequestQueue
from automl.record.study_requests import FolderRequestQueue
from automl.trial import TrialStarted

N_TIMES = 5
N_LOOKS = 10_000
LIMIT_SECONDS = 120.0
NAME = "study.name=edited"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
WORDS = (
    *("objective=python", NAME, "space={lr: {low: 0, high: 1}}", "study.n_trials=10000"),
    *("sampler=random", "pruner=none", "devices.only=cpu", "admission.max_concurrent_trials=1"),
)
OBJECTIVE = """
import time


def train(lr: float) -> float:
    time.sleep(0.5)
    return lr
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = folder / "studies" / "edited"
        (folder / "objective.py").write_text(OBJECTIVE)
        words = (*WORDS, f"objective.target={folder / 'objective.py'}:train")
        sweep = subprocess.Popen(
            command(*words), cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL
        )
        try:
            wait_until(lambda: len(starts(study)) > 2)
            edits = [edit_seconds(folder, study, number) for number in range(1, N_TIMES + 1)]
            pairs = [(call(folder, "pause"), call(folder, "resume")) for _ in range(N_TIMES)]
        finally:
            sweep.kill()
            sweep.wait()
        say("edit, to the first trial of the new space", [first for _, first in edits])
        say("edit, to its answer", [answer for answer, _ in edits])
        say("pause, to its answer", [pause for pause, _ in pairs])
        say("resume, to its answer", [resume for _, resume in pairs])
        inbox = FolderRequestQueue(study)
        begun = time.perf_counter()
        for _ in range(N_LOOKS):
            assert not inbox.pending()
        microseconds = (time.perf_counter() - begun) / N_LOOKS * 1e6
        sys.stdout.write(f"a look for requests takes {microseconds:.0f} µs\n")


def shared(url: str) -> None:
    """Measure two sweeps of one study in the database at `url`."""
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name, machine) for machine in ("one", "other")]
        sweeps = []
        for folder in folders:
            folder.mkdir()
            (folder / "objective.py").write_text(OBJECTIVE)
            words = (*WORDS, f"study.storage='{url}'", "tracking.uri=none")
            sweeps.append(
                subprocess.Popen(
                    command(*words, "objective.target=objective.py:train"),
                    cwd=folder,
                    env=ENVIRONMENT,
                    stdout=subprocess.DEVNULL,
                )
            )
        try:
            wait_until(lambda: all(len(starts(f / "studies" / "edited")) > 9 for f in folders))
            study = StudyConfig(name="edited", storage=url)
            with SharedRequestQueue.open(study) as queue:
                pairs = [(ask(queue, "pause", {}), ask(queue, "resume", {})) for _ in range(10)]
                edits = [edit_shared_seconds(queue, url, number) for number in range(10)]
        finally:
            for sweep in sweeps:
                sweep.kill()
                sweep.wait()
        say("pause, to the answer of both sweeps", [pause for pause, _ in pairs])
        say("resume, to the answer of both sweeps", [resume for _, resume in pairs])
        say("edit, to its answer", [answer for answer, _ in edits])
        say("edit, to the first trial of the new space in both", [both for _, both in edits])


def ask(queue: SharedRequestQueue, kind: str, arguments: dict[str, Any]) -> float:
    """Ask the sweeps, and return the seconds until they have answered."""
    begun = time.time()
    answer = queue.wait_for_answer(queue.write(kind, arguments), 30.0)
    assert answer is not None, "both are at work"
    assert answer.done, answer.text
    return time.time() - begun


def edit_shared_seconds(queue: SharedRequestQueue, url: str, number: int) -> tuple[float, float]:
    """Move the range of both sweeps. Return the seconds to the answer, and to the first trial of
    the new range in the later sweep."""
    ranges = [{"low": 10 * n, "high": 10 * n + 1} for n in (number, number + 1)]
    before, after = ({"space.lr": values} for values in ranges)
    begun = time.time()
    answer = ask(queue, "edit", {"before": before, "after": after, "defaults": {}})
    first: dict[str, float] = {}

    def moved() -> bool:
        with Database(url) as database, database.transaction() as cursor:
            stored = study_tables.events_after(cursor, 1, 0, 100_000)
        for each in stored:
            event = decode_event(each.line)
            if isinstance(event, TrialStarted) and event.params["lr"] >= ranges[1]["low"]:  # type: ignore[operator]
                first.setdefault(each.sweep, event.time - begun)
        return len(first) == 2

    wait_until(moved)
    return answer, max(first.values())


def command(*words: str) -> Sequence[str]:
    return [sys.executable, "-m", "automl", *words]


def call(folder: Path, *words: str) -> float:
    """Give a command, and return the seconds until it has ended."""
    begun = time.time()
    subprocess.run(
        command(*words, NAME), cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True
    )
    return time.time() - begun


def edit_seconds(folder: Path, study: Path, number: int) -> tuple[float, float]:
    """Move the range of the running sweep. Return the seconds from the command's begin to its end,
    and to the first trial of the new range."""
    begun = time.time()
    answer = call(folder, "edit", f"space.lr={{low: {number * 10}, high: {number * 10 + 1}}}")

    def moved() -> list[TrialStarted]:
        return [event for event in starts(study) if float(str(event.params["lr"])) >= number * 10]

    wait_until(lambda: bool(moved()))
    return answer, moved()[0].time - begun


def starts(study: Path) -> list[TrialStarted]:
    log = study / "events.log"
    events = read_events(log) if log.exists() else ()
    return [event for event, _ in events if isinstance(event, TrialStarted)]


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError("the sweep does not do what it was asked for")
        time.sleep(0.05)


def say(what: str, seconds: Sequence[float]) -> None:
    each = " ".join(f"{value:.1f}" for value in sorted(seconds))
    sys.stdout.write(f"{what}: median {statistics.median(seconds):.1f} s, each {each}\n")


if __name__ == "__main__":
    shared(sys.argv[1]) if sys.argv[1:] else main()
