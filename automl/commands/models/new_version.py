"""What a new version of a registered model is: the rows that it has not learned from, its scores
there, and its record in the registry.

Steps that were done before are left out. `champion.py` decides the version's alias. Apart from
`register.py`, since loading it loads PyTorch, which takes seconds that the user is told of.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.evaluate import evaluate_models
from automl.commands.models.champion import (
    LOSS_METRIC,
    ChampionComparison,
    ModelAlias,
    UnseenRows,
    judged_metric,
    shown_score,
    version_description,
)
from automl.commands.models.evaluation_scores import check_same_table, rows_learned_from
from automl.commands.models.served_package import ServedPackage
from automl.commands.models.which_model import TableModel
from automl.config import Config
from automl.config.command_arguments import ALL_ROWS, EvaluateArguments
from automl.data.scoring.evaluation import (
    N_RESAMPLES,
    EvaluationRows,
    bootstrap_difference,
    bootstrap_metrics,
)
from automl.data.scoring.metrics import make_predictions
from automl.data.tables.table_sources import plain_frame, raw_rows, records_of_rows
from automl.export.onnx_scores import NotComparableError, score_export
from automl.record.studies import read_study, study_path
from automl.tracking.registry.model_versions import (
    CHALLENGER,
    CHAMPION,
    DATA_TAG,
    NewModel,
    RegisteredVersion,
    RunRef,
    rows_key,
)
from automl.tracking.view.run_update import STUDY_TAG, TRIAL_TAG
from automl.tracking.view.study_run import model_score_points
from automl.trial import LoggedPoint, ModelsEvaluated

if TYPE_CHECKING:
    from automl.tracking.registry.registry import ModelRegistry


def rows_unseen_by(
    model: TableModel, evaluation: EvaluationRows, config: Config
) -> UnseenRows | None:
    """Return the rows, as they are recorded with a version; None if the model knows them. Raises
    AutoMLError."""
    check_same_table(evaluation.dataset, [model], config)
    if not evaluation.kind.unseen or rows_learned_from(model.refitted, evaluation.kind):
        return None
    event = score_on_unseen(model, evaluation, config)
    metric = judged_metric(config.study.leading_metric, event.scores[model.name])
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
    repeated = "" if model.refitted is None or model.is_ensemble else f",{model.trial}"
    arguments = EvaluateArguments(which=f"{model.which.text}{repeated}")
    # `register` delivers the scores to MLflow with the runs, right after.
    return evaluate_models(config, arguments, lambda line: None, show=False, to_mlflow=False)


def compare_with_champion(
    package: Path, download: Callable[[Path], Path], evaluation: EvaluationRows, config: Config
) -> ChampionComparison | str:
    """Return the difference in the study's metric between the export in `package` and the champion,
    which `download` brings into a folder; or why it cannot be computed. Raises AutoMLError."""
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
    samples = bootstrap_metrics(predictions, N_RESAMPLES, config.study.seed)
    scores = {name: predicted.scored() for name, predicted in predictions.items()}
    metric = judged_metric(config.study.leading_metric, scores["new"])
    if not all(math.isfinite(values[metric]) for values in scores.values()):
        metric = LOSS_METRIC  # an AUC of rows of one class does not exist
    above = scores["new"][metric] - scores["champion"][metric]
    resampled = samples["new"][metric] - samples["champion"][metric]
    return ChampionComparison(metric, bootstrap_difference(metric, above, resampled))


MODEL = "automl.model"
"""The tag with the model's name: `trial-00003`, `refit-trial-00003`, `ensemble` or
`refit-ensemble`."""
N_EXAMPLES = 3


def make_new_model(
    model: TableModel,
    package: ServedPackage,
    run: RunRef,
    study_uuid: str,
    unseen: UnseenRows | None,
    config: Config,
) -> NewModel:
    """Return the model to register, with all that is recorded with its version. Raises ConfigError
    for a table that cannot be read."""
    names = list(dict.fromkeys(column["name"] for column in package.schema["columns"]))
    tags = {STUDY_TAG: study_uuid, TRIAL_TAG: str(model.trial), MODEL: model.name}
    if unseen is not None:
        tags |= {DATA_TAG: unseen.data} if unseen.data else {}
        tags[rows_key(unseen.digest)] = unseen.words
    return NewModel(
        package=package.folder,
        digest=package.digest,
        name=model.name,
        run=run,
        example=plain_frame(raw_rows(config.data, N_EXAMPLES), names),
        tags=tags,
        params={name: str(value) for name, value in model.predictor.params.items()},
        about=version_description(
            model.name,
            study=str(config.study.name),
            metric=config.study.leading_metric,
            task=model.predictor.task,
            target=model.predictor.target,
            unseen=unseen,
            own=model.predictor.metrics,
            digest=package.digest,
        ),
        metrics=_metrics(model.name, unseen),
    )


def _metrics(model: str, unseen: UnseenRows | None) -> tuple[LoggedPoint, ...]:
    """Return the model's metrics in a study's evaluation, as its run has them."""
    return (
        ()
        if unseen is None or unseen.event is None
        else tuple(model_score_points(unseen.event, model))
    )


def put_model(
    registry: ModelRegistry, new: NewModel, known: RegisteredVersion | None, chosen: ModelAlias
) -> RegisteredVersion:
    """Write the version with all its tags, then its alias, and return it. Raises RegistryError."""
    version = registry.put(new, known)
    if registry.alias(chosen.alias) != version.number:
        registry.set_alias(chosen.alias, version.number)
    if chosen.alias == CHAMPION and registry.alias(CHALLENGER) == version.number:
        registry.drop_alias(CHALLENGER)
    return version
