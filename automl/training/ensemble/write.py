"""Makes `ensemble.pt`: models of a study as one, the weighted mean of what they say.

Those that are the best together are chosen by rows that none of them has seen
(`data/selection.py`). The file has the layout of a `refit.pt` of several, with weights. `found.py`
draws what they found.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automl.config import Task
from automl.data.dataset import Dataset
from automl.data.scores import Floats, predictions
from automl.data.selection import select
from automl.data.thresholds import best_threshold, second_of_two, thresholds_elsewhere
from automl.errors import AutoMLError
from automl.record.disk import replacing_folder
from automl.record.files import IMPORTANCES_PLOT
from automl.training.ensemble.words import EnsembleFile, Made
from automl.training.folds.judged import judged_outputs
from automl.training.mean_model import mean_outputs
from automl.training.model_state import THRESHOLD
from automl.training.predictor import Predictor, load_of_table
from automl.training.refit_file import of_members, read, save
from automl.training.resolve import resolve_builder

LEAST_SECONDS = 1e-6
"""Of a clock that has not moved."""


def write(asked: EnsembleFile) -> Made:
    """Choose the members, and write the file; whole, or the one of before stands.

    Raises AutoMLError where no model can be read.
    """
    return write_of(asked, Candidates(asked.dataset, asked.build))


def write_of(asked: EnsembleFile, candidates: Candidates) -> Made:
    """`write`, by whoever has asked some of the models already."""
    for trial, path in asked.models.items():
        candidates.add(trial, path)
    joined = candidates.joined(asked.models)
    if joined is None:
        raise AutoMLError(f"{asked.study}: no model of it can be read, so that none can be joined.")
    members = joined.members
    contents = [read(Path(asked.models[trial])) for trial in members]
    content = {
        **of_members([content["state"] for content in contents], members),
        "metrics": joined.scores,
        "study": asked.study,
    }
    if joined.threshold is not None:
        content["state"] = {**content["state"], THRESHOLD: joined.threshold}
    not_drawn = _draw(asked, joined, candidates)
    save(Path(asked.path), content, [Path(asked.models[trial]) for trial in members])
    return Made(members, joined.scores, joined.alone, dict(candidates.speeds), not_drawn)


@dataclass(frozen=True, eq=False)
class Joined:
    """Models that are the best together."""

    members: Mapping[int, float]
    """Weights by trial, the heaviest first."""
    outputs: Floats
    """(N, C) of their mean, for the rows by which they were chosen."""
    scores: Mapping[str, float]
    alone: Mapping[int, Mapping[str, float]]
    """Those of the trial that was named first, by itself."""
    threshold: float | None
    """That of its labels, where its members have one."""


class Candidates:
    """What models say of the rows that none of them trained on; each is asked once."""

    def __init__(self, dataset: Dataset, build: str | None) -> None:
        self._dataset = dataset
        self._build = None if build is None else resolve_builder(build)
        self._outputs: dict[int, Floats] = {}
        self._have_threshold: set[int] = set()
        self.speeds: dict[int, float] = {}
        """Rows that each predicts a second, by trial."""

    def add(self, trial: int, path: str) -> None:
        """Ask the model of a trial. Raises AutoMLError for one that cannot be read."""
        if trial in self.speeds:
            return
        model, data = self.model(path), self._dataset
        begun, begun_cpu = time.perf_counter(), time.process_time()
        given = judged_outputs(model.trained, data)
        # While trials train, this process waits for cores; its own time is then what it needs.
        seconds = time.perf_counter() - begun
        seconds = min(seconds, max(time.process_time() - begun_cpu, LEAST_SECONDS))
        # With folds each row is asked of one of its models in each division.
        n_asked = sum(len(fold.judged) for fold in data.folds) or len(data.validation)
        self.speeds[trial] = n_asked / data.n_models / seconds
        if np.isfinite(given).all():  # one that gives no numbers is none to be chosen
            self._outputs[trial] = given
        if model.threshold is not None:
            self._have_threshold.add(trial)

    def forget_others(self, trials: Collection[int]) -> None:
        """Those that are none of these, whose answers would take ever more memory."""
        for trial in [trial for trial in self.speeds if trial not in trials]:
            del self.speeds[trial]
            self._outputs.pop(trial, None)

    def model(self, path: str) -> Predictor:
        """Raises AutoMLError for one that cannot be read."""
        return load_of_table(path, build=self._build)

    def joined(self, trials: Iterable[int]) -> Joined | None:
        """The best of these, which are known, together, with the first beside it; None: there is
        none."""
        known, data = [trial for trial in trials if trial in self._outputs], self._dataset
        if not known:
            return None
        said = np.stack([_said(self._outputs[trial], data) for trial in known])
        chosen = select(said, data.judged.y.astype(np.float64), data.task, data.loss)
        members = {known[i]: chosen.weights[i] for i in chosen.members}
        each = np.stack([self._outputs[trial] for trial in members])
        outputs = mean_outputs(each, data.task, list(members.values()))
        by_threshold = not self._have_threshold.isdisjoint(members)
        scores = _scores(outputs, data, by_threshold=by_threshold)
        threshold = None
        if by_threshold:
            threshold = best_threshold(second_of_two(outputs), data.judged.y)
        alone = {known[0]: self._alone(known[0])}
        return Joined(members, outputs, scores, alone, threshold)

    def _alone(self, trial: int) -> Mapping[str, float]:
        by_threshold = trial in self._have_threshold
        return _scores(self._outputs[trial], self._dataset, by_threshold=by_threshold)


def _draw(asked: EnsembleFile, joined: Joined, candidates: Candidates) -> str:
    """Write the pictures, if there are to be any; those of before go. Returns what is not drawn,
    and why: a picture never ends the work."""
    if asked.plots is None:
        return ""
    try:
        from automl.training.ensemble.found import pictures  # loads matplotlib

        models = {n: candidates.model(asked.models[n]).trained for n in joined.members}
        drawn = pictures(
            asked.dataset,
            joined.outputs,
            models,
            joined.members,
            by_threshold=joined.threshold is not None,
        )
        with replacing_folder(Path(asked.plots)) as folder:
            for name, png in drawn.items():
                (folder / name).write_bytes(png)
    except Exception as error:  # noqa: BLE001 - it is said
        return f"what it found ({type(error).__name__}: {error})"
    return "" if IMPORTANCES_PLOT in drawn else "importances (of too many columns)"


def _said(outputs: Floats, data: Dataset) -> Floats:
    """(N,) what `select` takes."""
    if data.task is Task.regression:
        said: Floats = outputs[:, 0] * data.target_scale + data.target_mean
    else:
        logs = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        said = np.exp(logs[np.arange(len(logs)), data.judged.y])
    return said


def _scores(outputs: Floats, data: Dataset, *, by_threshold: bool) -> dict[str, float]:
    unit = data.target_mean, data.target_scale
    threshold = None
    if by_threshold:
        threshold = thresholds_elsewhere(second_of_two(outputs), data.judged.y)
    return predictions(data.task, outputs, data.judged.y, *unit, data.loss, threshold).scored()
