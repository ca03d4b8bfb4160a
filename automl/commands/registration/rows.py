"""The rows that a model is compared on, which it has not learned from, and its scores there."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from automl.commands.evaluate import evaluate
from automl.commands.evaluation.rows import check_data, learned_from
from automl.commands.registration.judged import LOSS, metric_of, shown
from automl.commands.registration.standing import Compared, Unseen
from automl.commands.which_model import TableModel
from automl.config import Config
from automl.config.refit import ALL
from automl.data.bootstrap import bootstrap, difference
from automl.data.evaluation import Evaluation
from automl.data.raw import rows_of
from automl.data.scores import predictions
from automl.record.studies import read_study, study_path
from automl.training.export.scored import NotComparableError, said_of
from automl.trial import Evaluated


def unseen_by(model: TableModel, evaluation: Evaluation, config: Config) -> Unseen | None:
    """The rows, as they stand beside a version; None: the model knows them. Raises AutoMLError."""
    check_data(evaluation.dataset, [model], config)
    if not evaluation.kind.unseen or learned_from(model.refitted, evaluation.kind):
        return None
    event = scored(model, evaluation, config)
    metric = metric_of(config.study.metric, event.scores[model.name])
    score = shown(event.scores[model.name][metric])
    words = f"{event.rows} ({evaluation.source}): {metric} {score}"
    all_of_it = model.refitted is not None and model.refitted.rows == ALL
    data = "" if all_of_it else evaluation.dataset.digest
    return Unseen(evaluation.digest, evaluation.kind, data, words, event)


def scored(model: TableModel, evaluation: Evaluation, config: Config) -> Evaluated:
    """Its scores on these rows: those that the study has, or `evaluate`'s. Raises AutoMLError."""
    for event in reversed(read_study(study_path(config.study)).evaluations):
        if event.digest == evaluation.digest and model.name in event.scores:
            return event
    trials = [] if model.joined else [model.trial]
    asked = replace(config.evaluate, trials=trials, model=model.which)
    # MLflow is given them with the runs, right after (run_of.py).
    return evaluate(replace(config, evaluate=asked), lambda line: None, show=False, to_mlflow=False)


def compared(
    package: Path, download: Callable[[Path], Path], evaluation: Evaluation, config: Config
) -> Compared | str:
    """By how much the study's metric of the export in `package` is above that of the one that
    `download` brings into a folder; or why nobody can tell. Raises AutoMLError."""
    data, y = evaluation.dataset, evaluation.part.y
    rows = rows_of(evaluation.frame())
    try:
        with tempfile.TemporaryDirectory() as folder:
            said = {
                "new": said_of(package, rows, data),
                "champion": said_of(download(Path(folder)), rows, data),
            }
    except NotComparableError as error:
        return str(error)
    scale = data.target_mean, data.target_scale
    named = {
        name: predictions(data.task, of.outputs, y, *scale, data.loss, of.threshold)
        for name, of in said.items()
    }
    samples = bootstrap(named, config.evaluate.n_resamples, config.study.seed)
    scores = {name: of.scored() for name, of in named.items()}
    metric = metric_of(config.study.metric, scores["new"])
    if not all(math.isfinite(of[metric]) for of in scores.values()):
        metric = LOSS  # an AUC of rows of one class is none
    above = scores["new"][metric] - scores["champion"][metric]
    resampled = samples["new"][metric] - samples["champion"][metric]
    return Compared(metric, difference(metric, above, resampled))
