"""A model brought into the registry, step by step; each is left out where it was done before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from automl.commands.registration.about import about_version
from automl.commands.registration.package import Package
from automl.commands.registration.standing import Standing, Unseen
from automl.commands.which_model import TableModel
from automl.config import Config
from automl.data.raw import plain_frame, raw_rows
from automl.tracking.evaluated import of_model
from automl.tracking.registry.words import (
    CHALLENGER,
    CHAMPION,
    DATA,
    NewModel,
    RunRef,
    Version,
    rows_key,
)
from automl.tracking.run_update import STUDY, TRIAL, MetricPoint

if TYPE_CHECKING:
    from automl.tracking.registry.registry import Registry

MODEL = "automl.model"
"""Tag: `trial-00003`, `refit-trial-00003`, `ensemble` or `refit-ensemble`."""
N_EXAMPLES = 3


def new_model(
    model: TableModel,
    package: Package,
    run: RunRef,
    study_uuid: str,
    unseen: Unseen | None,
    config: Config,
) -> NewModel:
    """What is registered, with all that is recorded with its version. Raises ConfigError for a
    table that cannot be read."""
    names = list(dict.fromkeys(column["name"] for column in package.schema["columns"]))
    tags = {STUDY: study_uuid, TRIAL: str(model.trial), MODEL: model.name}
    if unseen is not None:
        tags |= {DATA: unseen.data} if unseen.data else {}
        tags[rows_key(unseen.digest)] = unseen.words
    return NewModel(
        package=package.folder,
        digest=package.digest,
        name=model.name,
        run=run,
        example=plain_frame(raw_rows(config.data, N_EXAMPLES), names),
        tags=tags,
        params={name: str(value) for name, value in model.predictor.params.items()},
        about=about_version(
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


def _metrics(model: str, unseen: Unseen | None) -> tuple[MetricPoint, ...]:
    """What a study's evaluation says of the model, as its run has it."""
    return () if unseen is None or unseen.event is None else tuple(of_model(unseen.event, model))


def put(registry: Registry, new: NewModel, known: Version | None, stands: Standing) -> Version:
    """The version with all its tags and then its alias. Raises RegistryError."""
    version = registry.put(new, known)
    if registry.alias(stands.alias) != version.number:
        registry.set_alias(stands.alias, version.number)
    if stands.alias == CHAMPION and registry.alias(CHALLENGER) == version.number:
        registry.drop_alias(CHALLENGER)
    return version
