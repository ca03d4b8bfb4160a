"""The rows that a model to register has not learned from, its scores there, and the comparison
there.

The decision about the alias is made in `champion.py`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from automl.commands.evaluate import evaluate_models
from automl.commands.models.champion import (
    LOSS_METRIC,
    ChampionComparison,
    UnseenRows,
    judged_metric,
    shown_score,
)
from automl.commands.models.evaluation_scores import check_same_table, rows_learned_from
from automl.commands.models.which_model import TableModel
from automl.config import Config
from automl.config.commands import ALL_ROWS
from automl.data.scoring.evaluation import EvaluationRows, bootstrap_difference, bootstrap_metrics
from automl.data.scoring.metrics import make_predictions
from automl.data.tables.table_sources import records_of_rows
from automl.export.onnx_scores import NotComparableError, score_export
from automl.record.studies import read_study, study_path
from automl.trial import ModelsEvaluated


def rows_unseen_by(
    model: TableModel, evaluation: EvaluationRows, config: Config
) -> UnseenRows | None:
    """Return the rows, as they are recorded with a version; None if the model knows them. Raises
    AutoMLError."""
    check_same_table(evaluation.dataset, [model], config)
    if not evaluation.kind.unseen or rows_learned_from(model.refitted, evaluation.kind):
        return None
    event = score_on_unseen(model, evaluation, config)
    metric = judged_metric(config.study.metric, event.scores[model.name])
    score = shown_score(event.scores[model.name][metric])
    words = f"{event.rows} ({evaluation.source}): {metric} {score}"
    saw_all_rows = model.refitted is not None and model.refitted.rows == ALL_ROWS
    data = "" if saw_all_rows else evaluation.dataset.digest
    return UnseenRows(evaluation.digest, evaluation.kind, data, words, event)


def score_on_unseen(
    model: TableModel, evaluation: EvaluationRows, config: Config
) -> ModelsEvaluated:
    """Return the model's scores on these rows: from the study if it has them, else from a new
    evaluation. Raises AutoMLError."""
    for event in reversed(read_study(study_path(config.study)).evaluations):
        if event.digest == evaluation.digest and model.name in event.scores:
            return event
    trials = [] if model.is_ensemble else [model.trial]
    evaluate_config = replace(config.evaluate, trials=trials, model=model.which)
    # `register` delivers the scores to MLflow with the runs, right after.
    return evaluate_models(
        replace(config, evaluate=evaluate_config), lambda line: None, show=False, to_mlflow=False
    )


def compare_with_champion(
    package: Path, download: Callable[[Path], Path], evaluation: EvaluationRows, config: Config
) -> ChampionComparison | str:
    """Return by how much the study's metric of the export in `package` is above that of the
    champion, which `download` brings into a folder; or why nobody can tell. Raises AutoMLError."""
    data, y = evaluation.dataset, evaluation.part.y
    rows = records_of_rows(evaluation.frame())
    try:
        with tempfile.TemporaryDirectory() as folder:
            scored = {
                "new": score_export(package, rows, data),
                "champion": score_export(download(Path(folder)), rows, data),
            }
    except NotComparableError as error:
        return str(error)
    scale = data.target_mean, data.target_scale
    predictions = {
        name: make_predictions(data.task, found.outputs, y, *scale, data.loss, found.threshold)
        for name, found in scored.items()
    }
    samples = bootstrap_metrics(predictions, config.evaluate.n_resamples, config.study.seed)
    scores = {name: predicted.scored() for name, predicted in predictions.items()}
    metric = judged_metric(config.study.metric, scores["new"])
    if not all(math.isfinite(values[metric]) for values in scores.values()):
        metric = LOSS_METRIC  # an AUC of rows of one class does not exist
    above = scores["new"][metric] - scores["champion"][metric]
    resampled = samples["new"][metric] - samples["champion"][metric]
    return ChampionComparison(metric, bootstrap_difference(metric, above, resampled))
