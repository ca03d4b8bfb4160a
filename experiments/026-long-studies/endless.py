"""Measures whether a report, and a trial, of a long study costs as much as one of a short study.

    python experiments/026-long-studies/endless.py reports --n 1000000
    python experiments/026-long-studies/endless.py trials --n 10000

`reports` is one trial that reports so often, through all that a report passes: the trial's own
reports, the event log, and the study. `trials` are so many trials of ten reports each. Each tenth
of them is a row: CPU time, and the memory of the process. The second table has what the study left,
and what it takes to open it again and to read it for MLflow. See README.md.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from automl.config import StudyConfig
from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.trial_reports import TrialReports
from automl.record.event_log import EventLog, read_events
from automl.record.study_record import StudyRecordBuilder
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.search.search_space import parse_space
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import (
    Direction,
    FinishedOutcome,
    MetricsReported,
    SweepStarted,
    TrialEvent,
    TrialSpec,
    TrialStarted,
    Verdict,
)

N_REPORTS_OF_TRIAL = 10
CHECKPOINT_SECONDS = 60.0
PAGE_BYTES = resource.getpagesize()
SETTINGS = {"study.metric": "val_loss", "study.direction": "minimize"}


def open_study(folder: Path) -> Study:
    space = parse_space({"lr": {"low": 1e-4, "high": 1e-1, "log": True}})
    rules = StudyRules(
        space=space,
        sampler=IndependentSampler(),
        pruner=NoPruner(),
        identity=StudyIdentity({"space": space.plain()}, {}),
    )
    return Study.open(StudyConfig(name="endless", dir=str(folder)), rules, folder)


class EndlessStudy:
    """A study whose trials train nothing; `report` and `trial` do what a sweep does for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.study = open_study(folder)
        self.log = EventLog.open(folder / "events.log")
        self.log.append(SweepStarted(time.time(), "endless", self.study.uuid, SETTINGS))

    def begin(self) -> TrialReports:
        asked = self.study.ask()
        assert asked is not None
        self.log.append(TrialStarted(asked.number, time.time(), asked.params, device="cpu"))
        place = str(self._folder / "checkpoints" / f"trial-{asked.number:05d}")
        spec = TrialSpec(asked.number, asked.params, place, 0)
        goal = StudyGoal("val_loss", Direction.minimize, keeps_last=False)
        return TrialReports(spec, goal, self._take, CHECKPOINT_SECONDS, without_torch=True)

    def report(self, trial: TrialReports, step: int) -> None:
        metrics = {"train_loss": 1.0 / (step + 2), "val_loss": 1.0 / (step + 1)}
        trial.report(step, metrics, partial(dict, step=step), None)

    def end(self, trial: TrialReports) -> None:
        number = trial.spec.number
        outcome = FinishedOutcome(number, time.time(), trial.best_value or 0.0)
        self.log.append(outcome)
        self.study.tell(number, outcome)

    def trial(self, number: int) -> None:
        trial = self.begin()
        for step in range(N_REPORTS_OF_TRIAL):
            self.report(trial, step)
        self.end(trial)

    def close(self) -> None:
        self.log.close()
        self.study.close()

    def _take(self, event: TrialEvent) -> Verdict:
        self.log.append(event)
        if isinstance(event, MetricsReported):
            return self.study.report([event])[event.trial]
        return Verdict.GO_ON


def memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


def measured(do: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU time in seconds, and by how many MB the process grew."""
    began, before = time.process_time(), memory_mb()
    kept = do()
    grown = memory_mb() - before
    del kept
    return time.process_time() - began, grown


def tenths(n: int, do: Callable[[int], None]) -> Iterator[tuple[int, float, float]]:
    """Yield the number done, the CPU µs of each in the last tenth, and the process's memory."""
    for begin in range(0, n, n // 10):
        began = time.process_time()
        for i in range(begin, begin + n // 10):
            do(i)
        yield begin + n // 10, (time.process_time() - began) / (n // 10) * 1e6, memory_mb()


def say(*cells: object) -> None:
    sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()


def fold(path: Path) -> StudyRecordBuilder:
    folded = StudyRecordBuilder()
    for event, _ in read_events(path):
        folded.take(event)
    return folded


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["reports", "trials"])
    parser.add_argument("--n", type=int, required=True)
    args = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        endless = EndlessStudy(folder)
        do = endless.trial
        if args.what == "reports":
            do = partial(endless.report, endless.begin())
        say(args.what, "CPU µs each", "process, MB")
        say("---", "---", "---")
        for done, cpu_us, mb in tenths(args.n, do):
            say(f"{done:,}", f"{cpu_us:.0f}", f"{mb:.0f}")
        endless.close()
        say("left", "MB", "opened in CPU s", "process grows by, MB")
        for name, open_again in (
            ("events.log", partial(EventLog.open, folder / "events.log")),
            ("journal.log", partial(open_study, folder)),
            ("events.log, as the deliverer reads it", partial(fold, folder / "events.log")),
        ):
            size_mb = (folder / name.partition(",")[0]).stat().st_size / 1e6
            seconds, grown = measured(open_again)
            say(name, f"{size_mb:.0f}", f"{seconds:.1f}", f"{grown:.0f}")


if __name__ == "__main__":
    main()
