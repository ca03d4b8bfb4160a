"""Makes `ensemble.pt`: models of a study as one, the weighted mean of what they say.

Those that are the best together are chosen by rows that none of them has seen
(`data/selection.py`). The file has the layout of a `refit.pt` of several, with weights. `found.py`
draws what they found.

The ensemble of a sweep that goes on: each model is asked once, and kept in mind for the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automl.config import Task
from automl.data.dataset import Dataset
from automl.data.scoring.ensemble_selection import select_ensemble
from automl.data.scoring.metrics import (
    Floats,
    best_threshold,
    make_predictions,
    second_of_two,
    thresholds_elsewhere,
)
from automl.errors import AutoMLError
from automl.models.ensemble.ensemble_messages import (
    EnsembleFileJob,
    EnsembleFileResult,
    EnsembleQuery,
    EnsembleQueryResult,
    EnsembleWorkerSetup,
)
from automl.models.mean_model import mean_outputs
from automl.models.model_file import THRESHOLD_KEY
from automl.models.networks.folds.fold_estimator import judged_outputs
from automl.models.predictor import Predictor, load_table_model
from automl.models.refit_file import members_content, read_model_file, save_model_file
from automl.objectives.user_code import resolve_builder
from automl.record.disk import replacing_folder
from automl.record.study_files import IMPORTANCES_PLOT

LEAST_SECONDS = 1e-6
"""Of a clock that has not moved."""


def write(asked: EnsembleFileJob) -> EnsembleFileResult:
    """Choose the members, and write the file; whole, or the one of before stands.

    Raises AutoMLError where no model can be read.
    """
    return write_from_candidates(asked, EnsembleCandidates(asked.dataset, asked.build))


def write_from_candidates(
    asked: EnsembleFileJob, candidates: EnsembleCandidates
) -> EnsembleFileResult:
    """`write`, by whoever has asked some of the models already."""
    for trial, path in asked.models.items():
        candidates.add(trial, path)
    joined = candidates.joined(asked.models)
    if joined is None:
        raise AutoMLError(f"{asked.study}: no model of it can be read, so that none can be joined.")
    members = joined.members
    contents = [read_model_file(Path(asked.models[trial])) for trial in members]
    content = {
        **members_content([content["state"] for content in contents], members),
        "metrics": joined.scores,
        "study": asked.study,
    }
    if joined.threshold is not None:
        content["state"] = {**content["state"], THRESHOLD_KEY: joined.threshold}
    not_drawn = _draw(asked, joined, candidates)
    save_model_file(Path(asked.path), content, [Path(asked.models[trial]) for trial in members])
    return EnsembleFileResult(
        members, joined.scores, joined.alone, dict(candidates.speeds), not_drawn
    )


@dataclass(frozen=True, eq=False)
class EnsembleSelection:
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


class EnsembleCandidates:
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
        return load_table_model(path, build=self._build)

    def joined(self, trials: Iterable[int]) -> EnsembleSelection | None:
        """The best of these, which are known, together, with the first beside it; None: there is
        none."""
        known, data = [trial for trial in trials if trial in self._outputs], self._dataset
        if not known:
            return None
        said = np.stack([_said(self._outputs[trial], data) for trial in known])
        chosen = select_ensemble(said, data.judged.y.astype(np.float64), data.task, data.loss)
        members = {known[i]: chosen.weights[i] for i in chosen.members}
        each = np.stack([self._outputs[trial] for trial in members])
        outputs = mean_outputs(each, data.task, list(members.values()))
        by_threshold = not self._have_threshold.isdisjoint(members)
        scores = _scores(outputs, data, by_threshold=by_threshold)
        threshold = None
        if by_threshold:
            threshold = best_threshold(second_of_two(outputs), data.judged.y)
        alone = {known[0]: self._alone(known[0])}
        return EnsembleSelection(members, outputs, scores, alone, threshold)

    def _alone(self, trial: int) -> Mapping[str, float]:
        by_threshold = trial in self._have_threshold
        return _scores(self._outputs[trial], self._dataset, by_threshold=by_threshold)


def _draw(asked: EnsembleFileJob, joined: EnsembleSelection, candidates: EnsembleCandidates) -> str:
    """Write the pictures, if there are to be any; those of before go. Returns what is not drawn,
    and why: a picture never ends the work."""
    if asked.plots is None:
        return ""
    try:
        from automl.models.ensemble.ensemble_figures import ensemble_plots  # loads matplotlib

        models = {n: candidates.model(asked.models[n]).trained for n in joined.members}
        drawn = ensemble_plots(
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
    """(N,) what `select_ensemble` takes."""
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
    return make_predictions(data.task, outputs, data.judged.y, *unit, data.loss, threshold).scored()


def open_growing(
    growing: EnsembleWorkerSetup,
) -> Callable[[EnsembleQuery | EnsembleFileJob], EnsembleQueryResult | EnsembleFileResult | None]:
    """What answers how good models are together, and last writes the file."""
    return _EnsembleWorker(EnsembleCandidates(growing.dataset, growing.build))


@dataclass(frozen=True)
class _EnsembleWorker:
    candidates: EnsembleCandidates

    def __call__(
        self, question: EnsembleQuery | EnsembleFileJob
    ) -> EnsembleQueryResult | EnsembleFileResult:
        """Raises AutoMLError for models that cannot be read."""
        if isinstance(question, EnsembleFileJob):
            return write_from_candidates(question, self.candidates)
        self.candidates.forget_others(question.models)
        for trial, path in question.models.items():
            self.candidates.add(trial, path)
        begun = time.perf_counter()
        joined = self.candidates.joined(question.models)
        members, scores = ({}, {}) if joined is None else (joined.members, joined.scores)
        return EnsembleQueryResult(members, scores, time.perf_counter() - begun)
