"""Brings a model into the registry step by step; steps that were done before are left out.

The alias of the version is decided in `champion.py`, before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from automl.commands.models.champion import ModelAlias, UnseenRows, version_description
from automl.commands.models.model_package import ServedPackage
from automl.commands.models.which_model import TableModel
from automl.config import Config
from automl.data.tables.table_sources import plain_frame, raw_rows
from automl.tracking.registry.model_versions import (
    CHALLENGER,
    CHAMPION,
    DATA_TAG,
    NewModel,
    RegisteredVersion,
    RunRef,
    rows_key,
)
from automl.tracking.view.run_update import STUDY_TAG, TRIAL_TAG, MetricPoint
from automl.tracking.view.study_run import model_score_points

if TYPE_CHECKING:
    from automl.tracking.registry.registry import ModelRegistry

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
            metric=config.study.metric,
            task=model.predictor.task,
            target=model.predictor.target,
            unseen=unseen,
            own=model.predictor.metrics,
            digest=package.digest,
        ),
        metrics=_metrics(model.name, unseen),
    )


def _metrics(model: str, unseen: UnseenRows | None) -> tuple[MetricPoint, ...]:
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
