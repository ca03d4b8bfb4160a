"""`edit name=NEW`, `sweep from=NAME` and `delete`: what is done with a whole study.

All but `sweep from=NAME`, which only reads the study's config, hold the study's lock, so that a
study on which a sweep works is refused.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.command_call import CommandCall
from automl.commands.sweep import load_and_run_sweep
from automl.config import Config, StudyConfig, TrackingConfig
from automl.config.command_arguments import CloneArguments, DeleteArguments, RenameArguments
from automl.errors import AutoMLError, ConfigError, StorageError
from automl.record.disk import write_durably
from automl.record.secrets import mask_urls
from automl.record.studies import study_path
from automl.record.study_directory import (
    StudyDirectory,
    StudyPlace,
    copying_command,
    read_study_place,
    settle_place_unlocked,
    study_command,
)
from automl.record.study_files import StudyFiles
from automl.record.texts import counted, say_on_stdout, size_text
from automl.terminal.machine_output import wants_answer, write_answer
from automl.tracking.deliver.confirmed_offset import read_delivered_runs
from automl.tracking.deliver.delivery import deliver_study
from automl.tracking.mlflow_loading import set_mlflow_defaults
from automl.tracking.tracking_uri import resolve_uri
from automl.tracking.view.run_update import STUDY_TAG, StudyRef

if TYPE_CHECKING:
    from automl.tracking.deliver.mlflow_runs import MlflowRuns


def rename(call: CommandCall) -> int:
    """Give the study the new name, in its folder and in MLflow. Raises AutoMLError."""
    study, new_name = call.config.study, call.typed_arguments(RenameArguments).name
    if new_name is None:
        raise ConfigError("edit needs the name that the study gets: name=NEW.")
    if study.storage is not None:
        raise ConfigError(
            f"study.name={study.name}: it is kept in {mask_urls(study.storage)} under this name, "
            "which other machines use, too; a study in a database keeps its name. Begin one like "
            f"it under the new name: {copying_command(study, new_name)}"
        )
    renamed = replace(study, name=new_name)
    directory = study_path(study)
    settle_place_unlocked(directory, study)  # it may have been moved or copied before
    with StudyDirectory.open(study, must_exist=True):
        _move_folder(directory, study_path(renamed))
    say_on_stdout(f"study {study.name} is now {new_name}")
    _rename_in_mlflow(replace(call.config, study=renamed))
    write_answer({"name": new_name, "former_name": study.name})
    return 0


def clone(call: CommandCall) -> int:
    """Make the study of the new name, which has no trials yet and the settings of the study that
    was composed, with the changes of the command line. Raises AutoMLError."""
    arguments, cloned = call.typed_arguments(CloneArguments), call.stored_study
    new_name = arguments.name
    if new_name is None:
        raise ConfigError("from=NAME: the new study needs a name, too: name=NEW.")
    assert cloned is not None, "the registry says that it has a stored config"
    target = call.config.study
    path = study_path(target)
    _refuse_existing(path)
    if target.storage is not None and _is_in_database(target, path):
        raise ConfigError(
            f"name={new_name}: {mask_urls(target.storage)} has a study of this name; "
            "choose another name."
        )
    with StudyDirectory.open(target, must_exist=False) as directory:
        try:
            write_durably(directory.files.config, call.stored_config)
        except OSError as error:
            raise StorageError(
                f"{directory.files.config} cannot be written ({error.strerror}): make room or mend "
                "the disk, then give the same command again."
            ) from error
    say_on_stdout(f"study {new_name} has the settings of {cloned.name}, and no trials yet")
    if arguments.start:
        return load_and_run_sweep(call.config, call.stored_config, resume=True)
    say_on_stdout(f"start it: {study_command('resume', target)}")
    write_answer({"name": new_name, "cloned_from": cloned.name})
    return 0


def _refuse_existing(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise ConfigError(
            f"name={target.name}: {target} exists; choose another name, or delete that study first."
        )


def _move_folder(source: Path, target: Path) -> None:
    _refuse_existing(target)
    try:
        source.rename(target)
    except OSError as error:
        raise StorageError(
            f"{source} cannot be renamed ({error.strerror}): do this as its owner, or mend the "
            "folder's rights."
        ) from error


def _rename_in_mlflow(config: Config) -> None:
    """Deliver the renamed study, which renames its experiment. Says so where MLflow is down."""
    directory = study_path(config.study)
    place = settle_place_unlocked(directory, config.study)
    if place is None or not config.tracking.uses_mlflow:
        return
    ref = StudyRef(place.study_uuid, place.name, place.former_names)
    try:
        deliver_study(directory, config.tracking, study=ref)
    except AutoMLError as error:
        command = study_command("sync", config.study)
        say_on_stdout(f"MLflow has not got the new name yet: {error} Then: {command}")


def delete(call: CommandCall) -> int:
    """Delete the study and its runs in MLflow, if the user agrees. Raises AutoMLError.

    What was deleted before an error stays deleted; the same command goes on.
    """
    config = call.config
    study = config.study
    with StudyDirectory.open(study, must_exist=True) as directory:
        is_agreed = call.typed_arguments(DeleteArguments).yes
        if not (is_agreed or _is_confirmed(directory.files, config)):
            say_on_stdout("nothing was deleted")
            write_answer({"name": study.name, "deleted": False})
            return 1
        n_runs = _delete_runs(directory.files, config.tracking)
        if study.storage is not None:
            _delete_from_database(study, directory.path)
        _delete_folder(directory.files)
    runs_text = f", {counted(n_runs, 'run')} of it in MLflow, too" if n_runs else ""
    say_on_stdout(f"study {study.name} is deleted{runs_text}")
    write_answer({"name": study.name, "deleted": True, "n_runs": n_runs})
    return 0


def _is_confirmed(files: StudyFiles, config: Config) -> bool:
    """Ask the user, and return whether the answer is yes. Raises ConfigError where nobody can be
    asked."""
    if wants_answer() or not sys.stdin.isatty():
        raise ConfigError(
            "delete asks before it deletes, and here it cannot: say that you mean it with "
            f"{study_command('delete', config.study)} --yes"
        )
    size_bytes = sum(file.lstat().st_size for file in files.path.rglob("*"))
    in_database = "" if config.study.storage is None else ", its trials in the database"
    in_mlflow = "" if not config.tracking.uses_mlflow else ", its runs in MLflow"
    say_on_stdout(f"{files.path}: {size_text(size_bytes, 1024)}{in_database}{in_mlflow}")
    answer = input(f"Delete study {config.study.name} for good? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def _delete_runs(files: StudyFiles, tracking: TrackingConfig) -> int:
    """Delete the runs of the study and of its refits. Return their number."""
    place = read_study_place(files.path)
    if not tracking.uses_mlflow or place is None:
        return 0
    uri = resolve_uri(tracking)
    if uri.sqlite_path is not None and not uri.sqlite_path.exists():
        return 0
    set_mlflow_defaults(os.environ)
    from automl.tracking.deliver.mlflow_runs import MlflowRuns
    from automl.tracking.mlflow_store import (
        NotDeliveredError,
        RunDeletedError,
        RunGoneError,
        open_client,
    )

    runs = MlflowRuns(open_client(uri), uri, say_on_stdout)
    refits = [read_study_place(folder) for folder in files.refits.glob("*")]
    uuids = {known.study_uuid for known in (place, *refits) if known is not None}
    try:
        experiment = _find_experiment(runs, files, place)
        return 0 if experiment is None else runs.delete_studies(experiment, uuids)
    except (RunDeletedError, RunGoneError, NotDeliveredError) as error:
        raise AutoMLError(
            f"{uri}: MLflow does not delete the runs ({error}); the study itself is untouched. "
            "Give the command again when it answers, or leave its runs: tracking.uri=none"
        ) from error


def _find_experiment(runs: MlflowRuns, files: StudyFiles, place: StudyPlace) -> str | None:
    """Return the experiment that holds the study's runs; None if the store has none of them."""
    delivered = read_delivered_runs(files.events)
    if delivered is not None:
        experiment = runs.find_experiment_of_run(delivered.parent, place.study_uuid)
        if experiment is not None:
            return experiment
    for name in (place.name, *place.former_names):  # the note of what was delivered may be lost
        experiment = runs.find_experiment(name)
        if experiment is not None and runs.find(experiment, {STUDY_TAG: place.study_uuid}):
            return experiment
    return None


def _delete_from_database(study: StudyConfig, directory: Path) -> None:
    """Delete the trials from the database that `study.storage` names. Raises AutoMLError."""
    assert study.storage is not None
    if study.shared:
        from automl.record.sharing.study_fetch import delete_stored_study

        delete_stored_study(study)
        return
    from automl.search.storage import open_storage

    with closing(open_storage(study.storage, directory)) as opened, opened.guard():
        for found in opened.storage.get_all_studies():
            if found.study_name == study.name:
                opened.storage.delete_study(found._study_id)


def _is_in_database(study: StudyConfig, directory: Path) -> bool:
    """Return whether the database that `study.storage` names has the study. Raises AutoMLError."""
    if study.shared:
        from automl.record.sharing.study_fetch import fetch_stored_config

        return fetch_stored_config(study) is not None
    from automl.search.storage import open_storage

    with closing(open_storage(study.storage, directory)) as opened, opened.guard():
        return study.name in {s.study_name for s in opened.storage.get_all_studies()}


def _delete_folder(files: StudyFiles) -> None:
    """Delete the folder, its config last: until then the command finds the study again."""
    last = (files.config, files.lock)
    try:
        for path in files.path.iterdir():
            if path in last:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for path in last:
            path.unlink(missing_ok=True)
        files.path.rmdir()
    except OSError as error:
        raise StorageError(
            f"{error.filename} cannot be deleted ({error.strerror}): do this as its owner, or mend "
            "its rights, then give the command again."
        ) from error
