"""`register_model`: makes a study's model a version in MLflow's registry, to be served by MLflow.

The model is an export in ONNX, logged on the run of its trial or refit (of an ensemble, on the
study's run). It becomes a version of the registered model of the study's name. Existing parts are
reused: the export if it is of this model, the logged model and its version if their file has the
same digest. Which alias the version gets is decided in `models/champion.py`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.command_call import CommandCall
from automl.commands.models.champion import (
    ChampionComparison,
    ModelAlias,
    choose_alias,
    model_description,
)
from automl.commands.models.served_package import make_package
from automl.commands.models.study_opening import fetch_shared_study
from automl.commands.models.which_model import (
    TableModel,
    choose_model,
    open_model,
    outdated_model_note,
)
from automl.config import Config, TrackingConfig
from automl.config.command_arguments import RegisterArguments
from automl.config.which_models import parse_which
from automl.errors import AutoMLError
from automl.record.studies import read_study, study_path
from automl.record.study_directory import (
    StudyDirectory,
    StudyPlace,
    read_study_place,
    settle_place_unlocked,
)
from automl.record.study_files import EVENTS_FILE, StudyFiles
from automl.record.texts import Say, redact_text, say_on_stdout
from automl.terminal.machine_output import write_answer
from automl.tracking.deliver.confirmed_offset import is_fully_delivered, read_delivered_runs
from automl.tracking.deliver.delivery import deliver_study
from automl.tracking.deliver.process import SharedDeliveryJob
from automl.tracking.long_step import long_step
from automl.tracking.mlflow_loading import set_mlflow_defaults
from automl.tracking.registry.model_versions import CHAMPION, NewModel, RegisteredVersion, RunRef
from automl.tracking.tracking_uri import resolve_uri
from automl.tracking.view.run_update import StudyRef

if TYPE_CHECKING:
    from automl.tracking.registry.registry import ModelRegistry


def run_of_model(
    model: TableModel,
    directory: Path,
    place: StudyPlace | None,
    config: Config,
    has_run: Callable[[RunRef], bool],
) -> RunRef:
    """Deliver the runs, and return the run that the model is logged on; `has_run` asks the store.
    Raises AutoMLError where MLflow does not take the runs."""
    tracking = config.tracking
    _deliver(directory, place, tracking, SharedDeliveryJob.of(config.study))
    if model.refitted is None:
        return _run_in_mlflow(directory, None if model.is_ensemble else model.trial)
    folder = refit_folder(directory, model)
    log = StudyFiles(folder).events
    delivered = read_delivered_runs(log)
    # The refit delivered its runs itself: another process that loads MLflow is not needed.
    is_complete = delivered is not None and is_fully_delivered(log)
    if delivered is None or not (
        is_complete and has_run(RunRef(delivered.experiment, delivered.parent))
    ):
        _deliver(folder, read_study_place(folder), tracking)
    return _run_in_mlflow(folder, None)


def refit_folder(directory: Path, model: TableModel) -> Path:
    """Return the folder of the refit that wrote `refit.pt`: the last one that ended, of the same
    trial (or the ensemble) and rows. Raises AutoMLError where its folder is gone."""
    assert model.refitted is not None
    wanted = "" if model.is_ensemble else str(model.trial), model.refitted.rows
    ended: list[tuple[float, Path]] = []
    for log in StudyFiles(directory).refits.glob(f"*/{EVENTS_FILE}"):
        record = read_study(log.parent)
        end = record.sweeps[-1].end if record.sweeps else None
        if end is not None and _trial_and_rows(record.settings) == wanted:
            ended.append((end.time, log.parent))
    if not ended:
        raise AutoMLError(
            f"{model.file}: the refit that it came of is not in {StudyFiles(directory).refits} any "
            "more, so that it has no run in MLflow: refit again, or name a trial: which=N"
        )
    return max(ended)[1]


def _trial_and_rows(settings: Mapping[str, str]) -> tuple[str, str]:
    return settings.get("refit.trial", ""), settings.get("refit.rows", "")


def _deliver(
    directory: Path,
    place: StudyPlace | None,
    tracking: TrackingConfig,
    shared: SharedDeliveryJob | None = None,
) -> None:
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    deliver_study(directory, tracking, lambda line: None, study=ref, shared=shared)


def _run_in_mlflow(directory: Path, trial: int | None) -> RunRef:
    delivered = read_delivered_runs(StudyFiles(directory).events)
    run = (
        None
        if delivered is None
        else (delivered.parent if trial is None else delivered.runs.get(trial))
    )
    if delivered is None or run is None:
        raise AutoMLError(
            f"{StudyFiles(directory).delivered}: does not say in which run of MLflow the model is: "
            f"remove the file, and register again, which delivers all runs anew."
        )
    return RunRef(delivered.experiment, run)


@dataclass(frozen=True)
class RegistrationResult:
    """A version of a registered model, with its alias; `register_model` returns it."""

    name: str
    version: int
    digest: str
    """SHA-256 of the model's file, in hex."""
    model_alias: ModelAlias

    @property
    def answer(self) -> Mapping[str, object]:
        """The answer for a program."""
        return {"name": self.name, "version": self.version, "alias": self.model_alias.alias}


def run(call: CommandCall) -> int:
    """Register the model and print its version. Raises AutoMLError."""
    arguments = call.typed_arguments(RegisterArguments)
    write_answer(register_model(call.config, arguments, say_on_stdout).answer)
    return 0


def register_model(config: Config, arguments: RegisterArguments, say: Say) -> RegistrationResult:
    """Register the model that the arguments name as a version. Raises AutoMLError, after which the
    same call goes on."""
    fetch_shared_study(config.study)
    choice = choose_model(config, parse_which(arguments.which), "register")
    directory = study_path(config.study)
    place = settle_place_unlocked(directory, config.study)
    record = read_study(directory)
    owner = record.uuid if place is None else place.study_uuid
    shared = arguments.as_ is not None
    with long_step(f"loading MLflow, PyTorch and {choice.file.name}", say):
        set_mlflow_defaults(os.environ)
        from automl.tracking.registry.registry import open_registry

        registry = open_registry(config.tracking, arguments.as_ or directory.name)
        registry.refuse_taken(owner, shared=shared)

        from automl.commands.models.new_version import (
            compare_with_champion,
            make_new_model,
            rows_unseen_by,
        )
        from automl.data.scoring.evaluation import open_evaluation

        model = open_model(config, choice)
    if warning := outdated_model_note(config, model):
        say(warning)
    package = make_package(config, model, arguments.to)
    with long_step(f"putting {model.name} into the registry", say) as step:
        step.at("reading the table")
        evaluation = open_evaluation(
            config.data, record.settings.get("data.test"), config.training.value_loss
        )
        unseen = rows_unseen_by(model, evaluation, config)
        step.at("finding its run in MLflow")
        run_ref = run_of_model(model, directory, place, config, registry.has_run)
        new = make_new_model(model, package, run_ref, owner, unseen, config)

        def choose_for(champion: RegisteredVersion | None) -> ModelAlias:
            def compare() -> ChampionComparison | str:
                assert champion is not None, "there is one to compare with"
                step.at("comparing it with the champion")
                return compare_with_champion(
                    package.folder, lambda to: registry.download(champion, to), evaluation, config
                )

            return choose_alias(unseen, champion, compare)

        with StudyDirectory.open(config.study, must_exist=True):  # one registration at a time
            step.at("writing the version")
            about = model_description(directory.name, model.predictor.task, model.predictor.target)
            registry.claim(owner, shared=shared, about=about)
            version, alias = _put_version(registry, new, choose_for)
    result = RegistrationResult(registry.name, version.number, new.digest, alias)
    _say_result(result, model.name, config, say)
    return result


def _put_version(
    registry: ModelRegistry,
    new: NewModel,
    choose_for: Callable[[RegisteredVersion | None], ModelAlias],
) -> tuple[RegisteredVersion, ModelAlias]:
    from automl.commands.models.new_version import put_model

    versions = registry.versions()
    champion_number = registry.alias(CHAMPION)
    champion = next((version for version in versions if version.number == champion_number), None)
    known = next((version for version in versions if version.digest == new.digest), None)
    if known is not None and known == champion:
        alias = ModelAlias(CHAMPION, "as before")
    else:
        alias = choose_for(champion)
    return put_model(registry, new, known, alias), alias


def _say_result(result: RegistrationResult, model: str, config: Config, say: Say) -> None:
    alias = result.model_alias
    say(f"{model} is version {result.version} of the registered model {result.name}")
    say(f"{alias.alias}: {alias.why}")
    store = redact_text(resolve_uri(config.tracking).text)
    model_uri = f"models:/{result.name}@{alias.alias}"
    serve = f"mlflow models serve -m {shlex.quote(model_uri)} --env-manager local"
    say(f"serve it: MLFLOW_TRACKING_URI={store} {serve}")
