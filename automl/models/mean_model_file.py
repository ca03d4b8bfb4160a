"""Writes `refit.pt` and `ensemble.pt`, model files made of several models; it trains nothing.

Several seeds of one training become their mean: they share all but their weights. An ensemble is
the weighted mean of its members, each the mean of its seeds. Members are chosen by rows that none
of them has seen (`ensemble_selection.py`), also while the sweep still runs: each model
is asked once, and its outputs are kept. `mean_state.py` joins their states, and
`ensemble_findings.py` finds out what the ensemble goes by, and `ensemble_figures.py` draws that.
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
from automl.config.metrics import JUDGED_PREFIX, prediction_metrics
from automl.data.dataset import Dataset, spread_places
from automl.data.scoring.evaluation import bootstrap_interval, bootstrap_metrics
from automl.data.scoring.label_thresholds import LabelThresholds
from automl.data.scoring.metrics import Floats, JudgedPredictions, make_predictions
from automl.errors import AutoMLError
from automl.in_trial.checkpoints import plain_checkpoint
from automl.in_trial.user_code import resolve_builder
from automl.models.ensemble_findings import find_in_ensemble
from automl.models.ensemble_selection import select_ensemble, standard_errors_lost
from automl.models.judged_rows import TRIAL_THRESHOLD_METRICS
from automl.models.mean_model import class_probabilities, judged_outputs, mean_outputs
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
from automl.models.selection_costs import (
    LabelCosts,
    RowCosts,
    SelectionCosts,
    UsersMetricCosts,
    choose_sharpness,
    class_costs,
    value_costs,
)
from automl.record.disk import replace_folder
from automl.record.leaderboard import MAIN_METRICS
from automl.record.study_files import BEST_CHECKPOINT_FILE
from automl.trial import ENSEMBLE_NAME, EnsembleFindings, ScoreInterval, trial_name

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


N_RESAMPLES = 200
"""Number of bootstrap samples for the intervals of an ensemble and its candidates: five lie beyond
each end of a 95 % interval."""
N_INTERVALS = 50
"""Largest number of candidates that get intervals, the best first."""
N_USERS_INTERVALS = 5
"""The same, by a function of the user's, which is called for each sample of each candidate."""
MAX_RESAMPLED_ROWS = 200_000
"""Largest number of rows that are resampled, over all candidates; the ensemble always is."""
MAX_LABEL_ROWS = 20_000
"""Number of rows, evenly spread, by which models are selected by a metric of labels or ranks."""
MIN_SECONDS = 1e-6
"""Time that is assumed if the clock has not moved."""


def write_ensemble(job: EnsembleFileJob) -> EnsembleFileResult:
    """Choose the members, and write the file. Raises AutoMLError if no model can be read."""
    return write_from_candidates(job, EnsembleCandidates(job.dataset, job.build, job.metric))


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
        **members_content([_without_threshold(state) for state in states.values()], members),
        "metrics": selection.scores,
        "study": job.study,
    }
    if selection.thresholds is not None:
        content["state"] = {**content["state"], THRESHOLD_KEY: selection.thresholds.best}
    if selection.sharpness != 1.0:
        content["state"] = {**content["state"], SHARPNESS_KEY: selection.sharpness}
    findings, not_drawn = _find(job, selection, candidates)
    save_model_file(Path(job.path), content, [Path(job.models[trial]) for trial in members])
    return EnsembleFileResult(
        members,
        selection.scores,
        selection.best_trial_scores,
        dict(candidates.speeds),
        candidates.intervals(selection, job.models),
        findings,
        not_drawn,
        note,
    )


def _without_threshold(state: ModelState) -> ModelState:
    """Return the state of a model without its own label threshold."""
    return {key: value for key, value in state.items() if key != THRESHOLD_KEY}


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
    thresholds: LabelThresholds | None
    """What decides the labels of their mean; None: the likeliest class does."""
    sharpness: float = 1.0
    """Factor of the class scores of their mean."""


class EnsembleCandidates:
    """Outputs of models for the rows that none of them trained on; each model is asked once."""

    def __init__(self, dataset: Dataset, build: str | None, metric: str = "val_loss") -> None:
        self._dataset = dataset
        self._build = None if build is None else resolve_builder(build)
        name = metric.removeprefix(JUDGED_PREFIX)
        own = dataset.users_metric
        self._users_metric = own if own is not None and own.name == name else None
        known = prediction_metrics(dataset.task, dataset.loss)
        self._metric = name if self._users_metric is not None or name in known else "loss"
        self._outputs: dict[int, Floats] = {}
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
        thresholds = self._thresholds(outputs)
        scores = self._predictions(outputs, thresholds).scored()
        before, after = (self._costs([each]) for each in (selection.outputs, outputs))
        rise = standard_errors_lost(before, after)
        return replace(selection, outputs=outputs, scores=scores, thresholds=thresholds), rise

    def select(self, trials: Iterable[int]) -> EnsembleSelection | None:
        """Choose members among the `trials` whose outputs are known; None if there are none."""
        known, data = [trial for trial in trials if trial in self._outputs], self._dataset
        if not known:
            return None
        known_outputs = [self._outputs[trial] for trial in known]
        costs = self._costs(known_outputs)
        chosen = select_ensemble(costs, self._metric_costs(known_outputs))
        members = {known[i]: chosen.weights[i] for i in chosen.members}
        member_outputs = np.stack([self._outputs[trial] for trial in members])
        outputs = mean_outputs(member_outputs, data.task, list(members.values()))
        sharpness = 1.0
        if data.task is Task.classification and (data.folds or len(members) > 1):
            sharpness = choose_sharpness(outputs, data.judged.y.astype(np.int64))
            outputs = sharpness * outputs
        thresholds = self._thresholds(outputs)
        scores = self._predictions(outputs, thresholds).scored()
        best = known[0]
        best_scores = self._own_predictions(best).scored()
        return EnsembleSelection(
            members, outputs, scores, {best: best_scores}, thresholds, sharpness
        )

    def _costs(self, outputs: Sequence[Floats]) -> RowCosts:
        """Return what means of models with these outputs cost by the loss, or by a metric of
        numbers."""
        data = self._dataset
        if data.task is Task.regression:
            values = np.stack([each[:, 0] for each in outputs])
            y = data.judged.y.astype(np.float64)
            values = values * data.target_scale + data.target_mean
            return value_costs(values, y, data.loss, self._metric)
        rows = np.arange(len(data.judged))
        own = [each[rows, data.judged.y] - np.logaddexp.reduce(each, axis=1) for each in outputs]
        return class_costs(np.exp(np.stack(own)))

    def _metric_costs(self, outputs: Sequence[Floats]) -> SelectionCosts | None:
        """Return the costs by a metric of classes, or by a function of the user's; None if
        `_costs` are those of the metric."""
        data, own = self._dataset, self._users_metric
        if self._metric == "loss" or (data.task is Task.regression and own is None):
            return None
        rows = spread_places(len(data.judged), MAX_LABEL_ROWS)
        y = data.judged.y[rows]
        if data.task is Task.regression:
            assert own is not None, "returned above"
            values = np.stack([each[rows, 0] for each in outputs])
            return UsersMetricCosts(values * data.target_scale + data.target_mean, y, own)
        shares = np.stack([class_probabilities(each[rows]) for each in outputs])
        thresholds = LabelThresholds.find(np.log(shares.mean(axis=0)), y, self._metric, own)
        best = None if thresholds is None else thresholds.best
        if own is not None:
            return UsersMetricCosts(shares, y, own, best)
        return LabelCosts(shares, y, self._metric, best)

    def _thresholds(self, outputs: Floats) -> LabelThresholds | None:
        y = self._dataset.judged.y
        return LabelThresholds.find(outputs, y, self._metric, self._users_metric)

    def _predictions(
        self, outputs: Floats, thresholds: LabelThresholds | None
    ) -> JudgedPredictions:
        data = self._dataset
        unit = data.target_mean, data.target_scale
        held_out = None if thresholds is None else thresholds.held_out
        own = self._users_metric
        return make_predictions(data.task, outputs, data.judged.y, *unit, data.loss, held_out, own)

    def _own_predictions(self, trial: int) -> JudgedPredictions:
        outputs = self._outputs[trial]
        has_own = self._users_metric is not None or self._metric in TRIAL_THRESHOLD_METRICS
        return self._predictions(outputs, self._thresholds(outputs) if has_own else None)

    def intervals(
        self, selection: EnsembleSelection, trials: Iterable[int]
    ) -> dict[str, dict[str, ScoreInterval]]:
        """Return the main metrics with their intervals, of the ensemble and of the best of the
        `trials`, which are named in their order."""
        named = {ENSEMBLE_NAME: self._predictions(selection.outputs, selection.thresholds)}
        known = [trial for trial in trials if trial in self._outputs]
        n_models = min(N_INTERVALS, MAX_RESAMPLED_ROWS // max(1, len(self._dataset.judged)))
        if self._users_metric is not None:
            n_models = min(n_models, N_USERS_INTERVALS)
        named |= {trial_name(n): self._own_predictions(n) for n in known[:n_models]}
        shown = dict.fromkeys((self._metric, *MAIN_METRICS))
        metrics = [name for name in shown if name in named[ENSEMBLE_NAME].names]
        samples = bootstrap_metrics(named, N_RESAMPLES, seed=0, metrics=metrics)
        found: dict[str, dict[str, ScoreInterval]] = {}
        for name, predictions in named.items():
            scores = predictions.scored(metrics)
            all_own = {m: bootstrap_interval(scores[m], samples[name][m]) for m in metrics}
            found[name] = {m: own for m, own in all_own.items() if np.isfinite(own).all()}
        return found


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


def _find(
    job: EnsembleFileJob, selection: EnsembleSelection, candidates: EnsembleCandidates
) -> tuple[EnsembleFindings | None, str]:
    """Return what the ensemble goes by, if that is asked for; and what was not found or drawn, and
    why."""
    if job.importance_seconds is None:
        return None, ""
    found = None
    try:
        models = {n: candidates.model(job.models[n]).trained_model for n in selection.members}
        found = find_in_ensemble(
            job.dataset,
            selection.outputs,
            models,
            selection.members,
            thresholds=None if selection.thresholds is None else selection.thresholds.held_out,
            importance_seconds=job.importance_seconds,
        )
        if job.plots is not None:
            _draw(found, len(job.dataset.judged), Path(job.plots))
    except Exception as error:  # noqa: BLE001 - the caller reports it
        return found, f"what it found ({type(error).__name__}: {error})"
    is_missing = job.plots is not None and not found.importances
    missing = "importances (too little time; `automl evaluate NAME which=ensemble` draws them)"
    return found, missing * is_missing


def _draw(found: EnsembleFindings, n_rows: int, plots: Path) -> None:
    """Write the pictures of the findings in place of those of before."""
    from automl.models.ensemble_figures import ensemble_plots  # loads matplotlib

    pngs = ensemble_plots(found, n_rows)
    with replace_folder(plots) as folder:
        for name, png in pngs.items():
            (folder / name).write_bytes(png)


class EnsembleWorker:
    """Answers the messages of a sweep, and keeps the outputs of the models between them."""

    def __init__(self, setup: EnsembleWorkerSetup) -> None:
        self._candidates = EnsembleCandidates(setup.dataset, setup.build, setup.metric)

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
