"""`register`: a study's model in MLflow's registry, from where `mlflow models serve` serves it.

The model is an export in ONNX, logged on the run of its trial or refit, and a version of the
registered model of the study's name. What is there already is not made again: the export if it is
of this model, the model and its version if their file has the same digest.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from automl.commands.registration.about import about_model
from automl.commands.registration.package import packaged, refuse_unserved
from automl.commands.registration.standing import Compared, Standing, standing
from automl.commands.which_model import choose, open_model, outdated
from automl.config import Config
from automl.record.directory import StudyDirectory
from automl.record.opening import bring_up
from automl.record.place import settle_unlocked
from automl.record.redact import redact
from automl.record.studies import read_study, study_path
from automl.tracking.long_step import long_step
from automl.tracking.registry.opening import open_registry
from automl.tracking.registry.words import CHAMPION, NewModel, Version
from automl.tracking.say import Say, say_on_stdout
from automl.tracking.uri import resolve_uri

if TYPE_CHECKING:
    from collections.abc import Callable

    from automl.tracking.registry.registry import Registry


@dataclass(frozen=True)
class Registered:
    """A version of a registered model, with its alias."""

    name: str
    version: int
    digest: str
    """Of the model's file, in hex."""
    standing: Standing


def run(config: Config, stored_config: str) -> int:
    """Register it and say which version it is. Raises AutoMLError."""
    register(config, say_on_stdout)
    return 0


def register(config: Config, say: Say) -> Registered:
    """What `register.model` and `register.trial` mean becomes a version. Raises AutoMLError, after
    which the same call goes on."""
    refuse_unserved(config)
    bring_up(config.study)
    choice = choose(config, "register")
    directory = study_path(config.study)
    place = settle_unlocked(directory, config.study)
    record = read_study(directory)
    owner = record.uuid if place is None else place.study_uuid
    shared = config.register.name is not None
    with long_step(f"loading MLflow, PyTorch and {choice.file.name}", say):
        registry = open_registry(config.tracking, config.register.name or directory.name)
        registry.refuse_taken(owner, shared=shared)

        from automl.commands.registration.putting import new_model
        from automl.commands.registration.rows import compared, unseen_by
        from automl.commands.registration.run_of import run_of
        from automl.data.evaluation import open_evaluation

        model = open_model(config, choice)
    if late := outdated(config, model):
        say(late)
    package = packaged(config, model, choice)
    with long_step(f"putting {model.name} into the registry", say) as step:
        step.at("reading the table")
        evaluation = open_evaluation(
            config.data, record.settings.get("data.test_path"), config.training.value_loss
        )
        unseen = unseen_by(model, evaluation, config)
        step.at("finding its run in MLflow")
        run_ref = run_of(model, directory, place, config, registry.has_run)
        new = new_model(model, package, run_ref, owner, unseen, config)

        def stands(champion: Version | None) -> Standing:
            def compare() -> Compared | str:
                assert champion is not None, "there is one to compare with"
                step.at("comparing it with the champion")
                return compared(
                    package.folder, lambda to: registry.download(champion, to), evaluation, config
                )

            return standing(unseen, champion, compare)

        with StudyDirectory.open(config.study, must_exist=True):  # one registers at a time
            step.at("writing the version")
            about = about_model(directory.name, model.predictor.task, model.predictor.target)
            registry.claim(owner, shared=shared, about=about)
            version, alias = _put(registry, new, stands)
    done = Registered(registry.name, version.number, new.digest, alias)
    _tell(done, model.name, config, say)
    return done


def _put(
    registry: Registry, new: NewModel, stands: Callable[[Version | None], Standing]
) -> tuple[Version, Standing]:
    from automl.commands.registration.putting import put

    versions = registry.versions()
    at = registry.alias(CHAMPION)
    champion = next((version for version in versions if version.number == at), None)
    known = next((version for version in versions if version.digest == new.digest), None)
    if known is not None and known == champion:
        alias = Standing(CHAMPION, "as before")
    else:
        alias = stands(champion)
    return put(registry, new, known, alias), alias


def _tell(done: Registered, model: str, config: Config, say: Say) -> None:
    alias = done.standing
    say(f"{model} is version {done.version} of the registered model {done.name}")
    say(f"{alias.alias}: {alias.why}")
    store = redact(resolve_uri(config.tracking).text)
    model_uri = f"models:/{done.name}@{alias.alias}"
    say(f"serve it: MLFLOW_TRACKING_URI={store} mlflow models serve -m {shlex.quote(model_uri)}")
