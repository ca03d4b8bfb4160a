"""One trial whose objective is a program: what it is given, and what becomes of what it prints."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from automl.record.disk import flush_folder, make_folder, write_atomically
from automl.record.files import BEST_REPORT, PROGRAM_FILES
from automl.training.command.arguments import Given, environment
from automl.training.command.ending import LastLines
from automl.training.command.grouping import Grouping, Report
from automl.training.command.metrics import Find
from automl.training.command.setup import CommandSetup
from automl.training.goal import Goal
from automl.training.logged import LoggedSide
from automl.training.peaks import Peak, PeakTeller
from automl.training.reports import TrialReports
from automl.training.seeds import trial_seed
from automl.trial import LoggedPoint, OnEvent, Placement, TrialSpec

_PARAMS = "params.json"


class ProgramTrial:
    """One trial: what its program is given, and what becomes of what it prints."""

    def __init__(
        self, spec: TrialSpec, placement: Placement, setup: CommandSetup, on_event: OnEvent
    ) -> None:
        self.spec, self._placement, self._setup = spec, placement, setup
        self._directory = Path(spec.checkpoint_dir).absolute()
        self.given = Given(
            seed=trial_seed(spec.study_seed, spec.number),
            trial=spec.number,
            checkpoint_dir=str(self._directory),
            trial_dir=str(self._directory / PROGRAM_FILES),
            n_devices=len(placement.shares),
            json=str(self._directory / _PARAMS),
        )
        self.last = LastLines()
        self.peak_bytes = 0
        """The most main memory that its program was seen to hold."""
        self.teller = PeakTeller(self._get_peak)
        self.record = TrialReports(
            spec=spec,
            goal=Goal(setup.metric, setup.direction, tuple(spec.params)),
            on_event=on_event,
            checkpoint_every_seconds=math.inf,
            teller=self.teller,
            on_gpu=not placement.on_host,
        )
        self._grouping = Grouping(setup.metric)
        self._unflushed: Sequence[Path] = ()

    @property
    def environment(self) -> dict[str, str]:
        """What differs for its program."""
        visible = (
            ""
            if self._placement.on_host
            else ",".join(device.uuid for device in self._placement.devices)
        )
        own = {"CUDA_VISIBLE_DEVICES": visible, "PYTHONUNBUFFERED": "1"}
        defaults = {"OMP_NUM_THREADS": str(self._setup.n_threads), "PET_STANDALONE": "1"}
        unset = {name: text for name, text in defaults.items() if name not in os.environ}
        again = {"AUTOML_REFIT": "1"} if self._setup.refit else {}
        return unset | own | environment(self.spec.params, self.given) | again

    def prepare(self) -> None:
        """Make its folders, and take up what is known from before an interruption."""
        self._unflushed = make_folder(Path(self.given.trial_dir))
        write_atomically(Path(self.given.json), json.dumps(dict(self.spec.params)))
        with suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            best = json.loads((self._directory / BEST_REPORT).read_text())
            self.record.know_best(int(best["step"]), float(best["value"]))
        self.record.ask()

    def flush(self) -> None:
        """A power cut does not take the folder from under a checkpoint of the program's; while that
        begins, since it may take as long as a short program."""
        for folder in self._unflushed:
            flush_folder(folder)

    def report(self, report: Report) -> None:
        """Raises TrialPruned or TrialInterrupted."""
        with self.keeping_best():
            self.record.report(report.step, report.metrics, None, None)

    @contextmanager
    def keeping_best(self) -> Iterator[None]:
        """While something is reported, by whatever thread."""
        with self.record.lock:
            before = self.record.best_step, self.record.best_value
            try:
                yield
            finally:
                step, value = self.record.best_step, self.record.best_value
                if (step, value) != before:
                    text = json.dumps({"step": step, "value": value})
                    write_atomically(self._directory / BEST_REPORT, text)

    def take_line(self, line: str, find: Find) -> None:
        self.last.add(line)
        for report in self._grouping.take(find(line)):
            self.report(report)

    def end(self) -> None:
        """What its program printed last is a report, too."""
        for report in self._grouping.rest():
            self.report(report)

    def write(self, chunk: bytes) -> None:
        """To where this process prints."""
        sys.stdout.flush()
        left = memoryview(chunk)
        while left:
            left = left[os.write(1, left) :]

    def _get_peak(self) -> Peak | None:
        """Of a GPU the driver knows it."""
        return Peak(self.peak_bytes) if self._placement.on_host and self.peak_bytes else None


class ProgramSide(LoggedSide):
    """What a program logs through another library, beside what it prints."""

    def __init__(self, trial: ProgramTrial) -> None:
        super().__init__(trial.record)
        self._trial = trial

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        with self._trial.keeping_best():
            super().log(points, params, tags)
