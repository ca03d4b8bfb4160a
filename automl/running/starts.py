"""What an executor is given of a trial, and of its start: which attempt it is, and which in all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from automl.record.fence import Fence
from automl.running.messages import Asked
from automl.running.parts import Parts
from automl.trial import TrialSpec


class Starts:
    """Of one sweep. `spec` is for any thread, `begin` for the main one."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._n: Counter[int] = Counter()
        """By trial, in this sweep."""

    def spec(self, trial: Asked) -> TrialSpec:
        """Of a trial that is looked at, not started."""
        parts = self._parts
        return TrialSpec(
            number=trial.number,
            params=trial.params,
            checkpoint_dir=str(parts.directory.files.checkpoints(trial.number)),
            study_seed=parts.config.study.seed,
            entries=parts.study.entries(trial.params),
        )

    def begin(self, trial: Asked) -> TrialSpec:
        """Of a trial that is started now. Raises StorageError."""
        number, log = trial.number, self._parts.log
        before = log.record.trials.get(number)
        n_starts = self._n[number] + (0 if before is None else before.n_starts)
        self._n[number] += 1
        spec = replace(self.spec(trial), attempt=log.attempt(number), n_starts=n_starts)
        Fence(Path(spec.checkpoint_dir), spec.attempt).close()
        return spec
