"""Writes `refit.pt` and `ensemble.pt`, model files made of several models; it trains nothing.

Several seeds of one training become their mean: they share all but their weights. An ensemble is
the weighted mean of its members, each the mean of its seeds. Members are chosen by rows that none
of them has seen (`ensemble_selection.py`), also while the sweep still runs: each model
is asked once, and its outputs are kept. `mean_state.py` joins their states, and
`ensemble_figures.py` draws the pictures.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from automl.config import Task
from automl.data.dataset import Dataset
from automl.data.scoring.label_thresholds import (
    best_threshold,
    held_out_thresholds,
    label_probabilities,
)
from automl.data.scoring.metrics import (
    Floats,
    make_predictions,
)
from automl.errors import AutoMLError
from automl.in_trial.checkpoints import plain_checkpoint
from automl.in_trial.user_code import resolve_builder
from automl.models.ensemble_selection import (
    choose_sharpness,
    select_ensemble,
    standard_errors_lost,
)
from automl.models.mean_model import judged_outputs, mean_outputs
from automl.models.mean_state import (
    ModelState,
    count_leaves,
    join_states,
    keep_trees,
    tree_shares,
)
from automl.models.model_file import (
    REFITTED_KEY,
    SHARPNESS_KEY,
    THRESHOLD_KEY,
    EnsembleFileJob,
    EnsembleFileResult,
    EnsembleQuery,
    EnsembleQueryResult,
    EnsembleWorkerSetup,
    RefitFileJob,
)
from automl.models.predictor import (
    Predictor,
    load_table_model,
    read_checkpoint,
    read_model,
)
from automl.record.disk import replace_folder
from automl.record.study_files import BEST_CHECKPOINT_FILE, IMPORTANCES_PLOT
from automl.trial import trial_name

LEARNED_KEYS = (THRESHOLD_KEY, SHARPNESS_KEY)
"""Keys of what was learned from the rows that judge; a refit, which has none, keeps it."""


def write_refit(job: RefitFileJob) -> None:
    """Write the file of a job; if that fails, a former file stays. Raises AutoMLError."""
    contents = [read_model_file(Path(seed)) for seed in job.seeds]
    states = [content["state"] for content in contents]
    if job.weights:
        content = members_content(states, job.weights)
    else:
        content = contents[0] | {"state": join_states(states)}
    if job.searched_model is not None:
        searched_state = read_checkpoint(Path(job.searched_model))["state"]
        kept = {key: searched_state[key] for key in LEARNED_KEYS if key in searched_state}
        content["state"] = {**kept, **content["state"]}
    if len(contents) > 1:
        content["metrics"] = {}  # nobody measured their mean
    content |= {"study": job.study, REFITTED_KEY: asdict(job.refitted)}
    path = Path(job.path)
    save_model_file(path, content, list(map(Path, job.seeds)))


def members_content(states: Sequence[ModelState], weights: Mapping[int, float]) -> dict[str, Any]:
    """Return the content of an ensemble's file, from equally many states of each member.

    `states` has the seeds of one member after those of another, in the order of `weights`.
    """
    n_seeds = len(states) // len(weights)
    begins = range(0, len(states), n_seeds)
    members = [join_states(states[begin : begin + n_seeds]) for begin in begins]
    return {
        "state": join_states(members, list(weights.values())),
        "params": {trial_name(trial): weight for trial, weight in weights.items()},
    }


def save_model_file(path: Path, content: Mapping[str, Any], models: Sequence[Path]) -> None:
    """Write a file made of `models`, with torch if torch wrote one of them. Raises StorageError."""
    plain = [plain_checkpoint.is_plain_checkpoint(model) for model in models]
    if all(plain):
        plain_checkpoint.save(path.parent, {path.name: content})
        return
    from automl.in_trial.checkpoints import torch_checkpoint

    # What was read without torch holds arrays, which become tensors.
    torch_content = torch_checkpoint.snapshot(content) if any(plain) else content
    torch_checkpoint.save(path.parent, {path.name: torch_content})


def read_model_file(path: Path) -> dict[str, Any]:
    """Return the content of a model file. Raises AutoMLError for one that cannot be read."""
    try:
        return read_checkpoint(path)
    except FileNotFoundError as error:
        raise AutoMLError(
            f"{path}: there is no such file, so that there is no model to keep. A function of your "
            f"own leaves a {BEST_CHECKPOINT_FILE} where it gives a checkpoint with its reports."
        ) from error
    except ValueError as error:
        raise AutoMLError(f"{error} Remove its folder, and refit again.") from error


MIN_SECONDS = 1e-6
"""Time that is assumed if the clock has not moved."""


def write_ensemble(job: EnsembleFileJob) -> EnsembleFileResult:
    """Choose the members, and write the file. Raises AutoMLError if no model can be read."""
    return write_from_candidates(job, EnsembleCandidates(job.dataset, job.build))


def write_from_candidates(
    job: EnsembleFileJob, candidates: EnsembleCandidates
) -> EnsembleFileResult:
    """Write the file like `write_ensemble`, with the outputs of models that were asked already."""
    for trial, path in job.models.items():
        candidates.add(trial, path)
    selection = candidates.select(job.models)
    if selection is None:
        raise AutoMLError(f"{job.study}: no model of it can be read, so that none can be joined.")
    members = selection.members
    contents = {trial: read_model_file(Path(job.models[trial])) for trial in members}
    all_states = {trial: content["state"] for trial, content in contents.items()}
    states, selection, note = thin_forests(all_states, selection, candidates, job.max_leaves)
    content = {
        **members_content(list(states.values()), members),
        "metrics": selection.scores,
        "study": job.study,
    }
    if selection.threshold is not None:
        content["state"] = {**content["state"], THRESHOLD_KEY: selection.threshold}
    if selection.sharpness != 1.0:
        content["state"] = {**content["state"], SHARPNESS_KEY: selection.sharpness}
    not_drawn = _draw(job, selection, candidates)
    save_model_file(Path(job.path), content, [Path(job.models[trial]) for trial in members])
    return EnsembleFileResult(
        members,
        selection.scores,
        selection.best_trial_scores,
        dict(candidates.speeds),
        not_drawn,
        note,
    )


@dataclass(frozen=True, eq=False)
class EnsembleSelection:
    """The models that are the best together, with the outputs and metrics of their mean."""

    members: Mapping[int, float]
    """Weights of the members by trial, the heaviest first."""
    outputs: Floats
    """Outputs (N, C) of their mean, for the rows by which they were chosen."""
    scores: Mapping[str, float]
    """Metrics of their mean on the same rows."""
    best_trial_scores: Mapping[int, Mapping[str, float]]
    """Metrics of the trial that was named first, by itself, by trial."""
    threshold: float | tuple[float, ...] | None
    """Label threshold of their mean, if a member has a threshold; else None."""
    sharpness: float = 1.0
    """Factor of the class scores of their mean."""


class EnsembleCandidates:
    """Outputs of models for the rows that none of them trained on; each model is asked once."""

    def __init__(self, dataset: Dataset, build: str | None) -> None:
        self._dataset = dataset
        self._build = None if build is None else resolve_builder(build)
        self._outputs: dict[int, Floats] = {}
        self._have_threshold: set[int] = set()
        self.speeds: dict[int, float] = {}
        """Rows that each model predicts per second, by trial."""

    def add(self, trial: int, path: str) -> None:
        """Ask the model of a trial. Raises AutoMLError for one that cannot be read."""
        if trial in self.speeds:
            return
        model, data = self.model(path), self._dataset
        begun, begun_cpu = time.perf_counter(), time.process_time()
        outputs = judged_outputs(model.trained_model, data)
        # This process waits for cores while trials train, so its CPU time is the better measure.
        seconds = time.perf_counter() - begun
        seconds = min(seconds, max(time.process_time() - begun_cpu, MIN_SECONDS))
        # With folds, one model of each division predicts a row.
        n_asked = sum(len(fold.judged) for fold in data.folds) or len(data.validation)
        self.speeds[trial] = n_asked / data.n_models / seconds
        if np.isfinite(outputs).all():  # a model that gives no numbers cannot be chosen
            self._outputs[trial] = outputs
        if model.threshold is not None:
            self._have_threshold.add(trial)

    def forget_others(self, trials: Collection[int]) -> None:
        """Forget all models but those of `trials`, whose outputs would take ever more memory."""
        for trial in [trial for trial in self.speeds if trial not in trials]:
            del self.speeds[trial]
            self._outputs.pop(trial, None)

    def model(self, path: str) -> Predictor:
        """Load a model file. Raises AutoMLError for one that cannot be read."""
        return load_table_model(path, build=self._build)

    def reselect(
        self, selection: EnsembleSelection, states: Mapping[int, ModelState]
    ) -> tuple[EnsembleSelection, float]:
        """Return the selection whose members have other states, and by how many standard errors its
        loss is higher."""
        data = self._dataset
        own = {
            trial: judged_outputs(read_model(state, sys.maxsize, self._build), data)
            for trial, state in states.items()
        }
        stacked = np.stack([own.get(trial, self._outputs[trial]) for trial in selection.members])
        mean = mean_outputs(stacked, data.task, list(selection.members.values()))
        outputs = selection.sharpness * mean
        by_threshold = selection.threshold is not None
        scores = _scores(outputs, data, by_threshold=by_threshold)
        before, after = (_selection_inputs(each, data) for each in (selection.outputs, outputs))
        y = data.judged.y.astype(np.float64)
        rise = standard_errors_lost(before, after, y, data.task, data.loss)
        return replace(selection, outputs=outputs, scores=scores), rise

    def select(self, trials: Iterable[int]) -> EnsembleSelection | None:
        """Choose members among the `trials` whose outputs are known; None if there are none."""
        known, data = [trial for trial in trials if trial in self._outputs], self._dataset
        if not known:
            return None
        inputs = np.stack([_selection_inputs(self._outputs[trial], data) for trial in known])
        chosen = select_ensemble(inputs, data.judged.y.astype(np.float64), data.task, data.loss)
        members = {known[i]: chosen.weights[i] for i in chosen.members}
        member_outputs = np.stack([self._outputs[trial] for trial in members])
        outputs = mean_outputs(member_outputs, data.task, list(members.values()))
        sharpness = 1.0
        if data.task is Task.classification and (data.folds or len(members) > 1):
            sharpness = choose_sharpness(outputs, data.judged.y.astype(np.int64))
            outputs = sharpness * outputs
        by_threshold = not self._have_threshold.isdisjoint(members)
        scores = _scores(outputs, data, by_threshold=by_threshold)
        threshold: float | tuple[float, ...] | None = None
        if by_threshold:
            threshold = best_threshold(label_probabilities(outputs), data.judged.y)
        best = known[0]
        best_scores = _scores(self._outputs[best], data, by_threshold=best in self._have_threshold)
        return EnsembleSelection(
            members, outputs, scores, {best: best_scores}, threshold, sharpness
        )


MAX_RISE = 1 / 3
"""Largest rise of an ensemble's loss for fewer trees, in standard errors of the loss. It is less on
new rows, which the forests of all folds predict (`experiments/013-tables/README.md`)."""


def thin_forests(
    states: Mapping[int, ModelState],
    selection: EnsembleSelection,
    candidates: EnsembleCandidates,
    max_leaves: int,
) -> tuple[Mapping[int, ModelState], EnsembleSelection, str]:
    """Return states of members by trial whose forests have at most `max_leaves` leaves, the
    selection with their outputs, and a note. All stay as they are if the loss would rise too much.

    A forest keeps trees in proportion to its weight, with which the mean of all varies least.
    """
    n_leaves = {trial: count_leaves(states[trial]) for trial in states}
    total = sum(n_leaves.values())
    if total <= max_leaves:
        return states, selection, ""
    shares = tree_shares(n_leaves, selection.members, max_leaves)
    thinned = {t: keep_trees(s, shares[t]) if n_leaves[t] else s for t, s in states.items()}
    reselected, rise = candidates.reselect(
        selection, {t: thinned[t] for t in thinned if n_leaves[t]}
    )
    note = f"forests of the ensemble: {total:,} leaves, above {max_leaves:,} (50 MB as ONNX); "
    if rise > MAX_RISE:
        return states, selection, f"{note}all are kept, since fewer trees are worse."
    before, after = (f"{of.scores['loss']:.5g}" for of in (selection, reselected))
    return thinned, reselected, f"{note}trees were left out, loss {before} to {after}."


def _draw(
    job: EnsembleFileJob, selection: EnsembleSelection, candidates: EnsembleCandidates
) -> str:
    """Write the pictures that are asked for, and return which failed and why."""
    if job.plots is None:
        return ""
    try:
        from automl.models.ensemble_figures import ensemble_plots  # loads matplotlib

        models = {n: candidates.model(job.models[n]).trained_model for n in selection.members}
        pngs = ensemble_plots(
            job.dataset,
            selection.outputs,
            models,
            selection.members,
            by_threshold=selection.threshold is not None,
        )
        with replace_folder(Path(job.plots)) as folder:
            for name, png in pngs.items():
                (folder / name).write_bytes(png)
    except Exception as error:  # noqa: BLE001 - the caller reports it
        return f"what it found ({type(error).__name__}: {error})"
    return "" if IMPORTANCES_PLOT in pngs else "importances (of too many columns)"


def _selection_inputs(outputs: Floats, data: Dataset) -> Floats:
    """Return what `select_ensemble` takes (N,): values, or probabilities of the true classes."""
    if data.task is Task.regression:
        values: Floats = outputs[:, 0] * data.target_scale + data.target_mean
        return values
    logs = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
    probabilities: Floats = np.exp(logs[np.arange(len(logs)), data.judged.y])
    return probabilities


def _scores(outputs: Floats, data: Dataset, *, by_threshold: bool) -> dict[str, float]:
    unit = data.target_mean, data.target_scale
    threshold = None
    if by_threshold:
        threshold = held_out_thresholds(label_probabilities(outputs), data.judged.y)
    return make_predictions(data.task, outputs, data.judged.y, *unit, data.loss, threshold).scored()


class EnsembleWorker:
    """Answers the messages of a sweep, and keeps the outputs of the models between them."""

    def __init__(self, setup: EnsembleWorkerSetup) -> None:
        self._candidates = EnsembleCandidates(setup.dataset, setup.build)

    def __call__(
        self, question: EnsembleQuery | EnsembleFileJob
    ) -> EnsembleQueryResult | EnsembleFileResult:
        """Answer a message. Raises AutoMLError for models that cannot be read."""
        if isinstance(question, EnsembleFileJob):
            return write_from_candidates(question, self._candidates)
        self._candidates.forget_others(question.models)
        for trial, path in question.models.items():
            self._candidates.add(trial, path)
        begun = time.perf_counter()
        selection = self._candidates.select(question.models)
        members, scores = ({}, {}) if selection is None else (selection.members, selection.scores)
        return EnsembleQueryResult(members, scores, time.perf_counter() - begun)
