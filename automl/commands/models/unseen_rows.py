"""The rows that a model is compared on, which it has not learned from, and its scores there."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from automl.commands.evaluate import evaluate
from automl.commands.models.champion import (
    LOSS,
    ChampionComparison,
    UnseenRows,
    judged_metric,
    shown_score,
)
from automl.commands.models.evaluation_scores import check_data, rows_learned_from
from automl.commands.models.which_model import TableModel
from automl.config import Config
from automl.config.commands import ALL
from automl.data.scoring.baselines import bootstrap, bootstrap_difference
from automl.data.scoring.evaluation import EvaluationRows
from automl.data.scoring.metrics import make_predictions
from automl.data.tables.table_sources import records_of_rows
from automl.export.onnx_scores import NotComparableError, score_export
from automl.record.studies import read_study, study_path
from automl.trial import ModelsEvaluated


def rows_unseen_by(
    model: TableModel, evaluation: EvaluationRows, config: Config
) -> UnseenRows | None:
    """The rows, as they stand beside a version; None: the model knows them. Raises AutoMLError."""
    check_data(evaluation.dataset, [model], config)
    if not evaluation.kind.unseen or rows_learned_from(model.refitted, evaluation.kind):
        return None
    event = score_on_unseen(model, evaluation, config)
    metric = judged_metric(config.study.metric, event.scores[model.name])
    score = shown_score(event.scores[model.name][metric])
    words = f"{event.rows} ({evaluation.source}): {metric} {score}"
    all_of_it = model.refitted is not None and model.refitted.rows == ALL
    data = "" if all_of_it else evaluation.dataset.digest
    return UnseenRows(evaluation.digest, evaluation.kind, data, words, event)


def score_on_unseen(
    model: TableModel, evaluation: EvaluationRows, config: Config
) -> ModelsEvaluated:
    """Its scores on these rows: those that the study has, or `evaluate`'s. Raises AutoMLError."""
    for event in reversed(read_study(study_path(config.study)).evaluations):
        if event.digest == evaluation.digest and model.name in event.scores:
            return event
    trials = [] if model.joined else [model.trial]
    asked = replace(config.evaluate, trials=trials, model=model.which)
    # MLflow is given them with the runs, right after (run_of.py).
    return evaluate(replace(config, evaluate=asked), lambda line: None, show=False, to_mlflow=False)


def compare_with_champion(
    package: Path, download: Callable[[Path], Path], evaluation: EvaluationRows, config: Config
) -> ChampionComparison | str:
    """By how much the study's metric of the export in `package` is above that of the one that
    `download` brings into a folder; or why nobody can tell. Raises AutoMLError."""
    data, y = evaluation.dataset, evaluation.part.y
    rows = records_of_rows(evaluation.frame())
    try:
        with tempfile.TemporaryDirectory() as folder:
            said = {
                "new": score_export(package, rows, data),
                "champion": score_export(download(Path(folder)), rows, data),
            }
    except NotComparableError as error:
        return str(error)
    scale = data.target_mean, data.target_scale
    named = {
        name: make_predictions(data.task, of.outputs, y, *scale, data.loss, of.threshold)
        for name, of in said.items()
    }
    samples = bootstrap(named, config.evaluate.n_resamples, config.study.seed)
    scores = {name: of.scored() for name, of in named.items()}
    metric = judged_metric(config.study.metric, scores["new"])
    if not all(math.isfinite(of[metric]) for of in scores.values()):
        metric = LOSS  # an AUC of rows of one class is none
    above = scores["new"][metric] - scores["champion"][metric]
    resampled = samples["new"][metric] - samples["champion"][metric]
    return ChampionComparison(metric, bootstrap_difference(metric, above, resampled))
