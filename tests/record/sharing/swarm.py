"""Sweeps of one shared study without a training: processes that can be killed, stopped, cut off.

A sweep asks, reports and tells as the real one does, through the real record and its threads. Its
times are some forty times shorter, so that a lease lasts a second and a half.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.record.sharing import background_duties, study_tables
from automl.record.sharing.shared_record import SharedRecord
from automl.search.samplers.random import IndependentSampler
from automl.search.shared_study import SharedStudy, open_shared_storage
from automl.trial import FinishedOutcome, MetricsReported, TrialStarted
from tests.search.joining import rules_of

N_STEPS = 6
N_HELD = 2
"""Trials that a sweep carries at once."""
STEP_SECONDS = 0.01
LEASE_SECONDS = 1.5
_TIMES = {
    "SHIP_SECONDS": 0.02,
    "LOOK_SECONDS": 0.1,
    "RENEW_SECONDS": 0.25,
    "GIVE_UP_SECONDS": 1.2,
    "RENEW_AFTER_STOP_SECONDS": 0.3,
}


def work(url: str, folder: Path, n_trials: int) -> None:
    """Take part in the study until all its trials have ended."""
    patch = pytest.MonkeyPatch()
    lease = f"clock_timestamp() + interval '{LEASE_SECONDS} seconds'"
    patch.setattr(study_tables, "LEASE_END", lease)
    for name, seconds in _TIMES.items():
        patch.setattr(background_duties, name, seconds)
    config = StudyConfig(name="a", dir=str(folder), storage=url, n_trials=n_trials)
    with closing(SharedRecord.open(config, folder)) as shared:
        opened = open_shared_storage(shared, "config")
        study = SharedStudy.open(config, rules_of(IndependentSampler()), folder, opened)
        sweep = _Sweep(shared, study)
        shared.start(
            lambda: [*sweep.carried],
            lambda standing: None,
            _end_process,
            sweep.drop,
            lambda until_seconds: None,
        )
        while not sweep.is_over(n_trials):
            sweep.turn()


def _end_process(error: BaseException) -> None:
    os._exit(3)


class _Sweep:
    def __init__(self, shared: SharedRecord, study: SharedStudy) -> None:
        self._shared, self._study = shared, study
        self.carried: dict[int, int] = {}
        """The next step of each trial that is carried; it begins at 0, as without a checkpoint."""

    def is_over(self, n_trials: int) -> bool:
        standing = self._shared.standing
        return not self.carried and standing.n_asked >= n_trials and not standing.others_run

    def drop(self, trials: object) -> None:
        """Do nothing: a lost trial is dropped at its next step."""

    def turn(self) -> None:
        """Take one more trial if there is room, then one step of each."""
        if len(self.carried) < N_HELD and (asked := self._study.ask()) is not None:
            self.carried[asked.number] = 0
            self._shared.log.append(TrialStarted(asked.number, time.time(), asked.params, "cpu"))
        time.sleep(STEP_SECONDS)
        self._study.add_news()
        for number, step in [*self.carried.items()]:
            if not self._shared.log.holds(number):
                del self.carried[number]
            elif step < N_STEPS:
                self._report(
                    MetricsReported(number, time.time(), step, {"val_loss": 1.0 / (step + 1)})
                )
            else:
                self._end(FinishedOutcome(number, time.time(), 0.5))

    def _report(self, report: MetricsReported) -> None:
        self._shared.log.append(report)
        self._study.report([report])
        self.carried[report.trial] += 1

    def _end(self, outcome: FinishedOutcome) -> None:
        self._shared.log.append(outcome)
        self._study.tell(outcome.trial, outcome)
        del self.carried[outcome.trial]


class Swarm:
    """The sweeps of a test, each in a folder of its own."""

    def __init__(self, url: str, folder: Path, n_trials: int) -> None:
        self._url, self._folder, self._n_trials = url, folder, n_trials
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self.sweeps: list[BaseProcess] = []
        self.deaths: dict[int, float] = {}
        """When each process was killed that was (seconds since the epoch)."""

    def start(self, name: str) -> None:
        """Start a sweep in a folder, which an earlier one may have left."""
        (folder := self._folder / name).mkdir(exist_ok=True)
        sweep = self._context.Process(target=work, args=(self._url, folder, self._n_trials))
        sweep.start()
        self.sweeps.append(sweep)

    def kill(self, n: int) -> None:
        """`kill -9`."""
        pid = self.sweeps[n].pid
        assert pid is not None
        self.deaths[pid] = time.time()
        self.sweeps[n].kill()
        self.sweeps[n].join()

    def signal(self, n: int, number: signal.Signals) -> None:
        pid = self.sweeps[n].pid
        assert pid is not None
        os.kill(pid, number)

    def wait(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Wait for all sweeps, or until it is enough. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while any(sweep.is_alive() for sweep in self.sweeps) and not is_enough():
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {seconds:g} s sweeps are still at work")
            time.sleep(0.01)

    def end(self) -> None:
        for sweep in self.sweeps:
            sweep.kill()
            sweep.join()
