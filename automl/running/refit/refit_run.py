"""Runs a refit from its checks to `refit.pt`, of one trial or of an ensemble's members.

What is trained, and how, is decided in the other files of this folder. The trainings themselves are
sweeps (`running/run_sweep.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from automl.config import Config, DataKind, ObjectiveKind
from automl.config.command_arguments import ALL_ROWS, TRAIN_ROWS
from automl.data.dataset import Dataset, RefitRows, UserDataFacts
from automl.devices.device_reader import open_device_reader
from automl.devices.host import usable_cores
from automl.errors import AutoMLError
from automl.execution.child_calls import call_in_child
from automl.models.model_file import RefitFacts, RefitFileJob
from automl.models.networks.network_family import NetworkFamily
from automl.objectives.training_plan import RefitTraining
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory, study_command
from automl.record.study_files import REFIT_MODEL_FILE, StudyFiles
from automl.record.texts import say_on_stdout
from automl.record.trial_record import TrialRecord
from automl.record.winner_file import link_winner
from automl.running.prepare.preparation import announce_reading, describe_user_data, prepare_study
from automl.running.prepare.prepared_config import PreparedStudy, RefitInputs
from automl.running.prepare.refit_task import RefitTask
from automl.running.prepare.resume_command import resume_command
from automl.running.refit.refit_devices import (
    RefitDevices,
    RefitResources,
    devices_for_builtin,
    devices_for_user_code,
)
from automl.running.refit.refit_study import (
    TrainRowCounts,
    as_single_family,
    assign_members,
    decide_refit,
    derive_refit_config,
    finished_by_member,
    members_table,
    refit_name,
)
from automl.running.refit.winner_check import (
    check_summary,
    derive_check_config,
    member_to_check,
    take_best_checked,
    unchecked_members_note,
)
from automl.running.run_sweep import run_sweep
from automl.search.study import Study
from automl.terminal.console import open_console
from automl.tracking.deliver.delivery import DelivererProcess
from automl.tracking.long_step import long_step
from automl.trial import CheckpointKind, ProcessEntry, trial_name

WRITE = "automl.models.mean_model_file:write_refit"


def run_refit(task: RefitTask, stored_config: str, deliverer: DelivererProcess | None) -> int:
    """Train the task's trials again, and write `refit.pt`. Return the exit code. Raises
    AutoMLError."""
    prepared = prepare_study(task.config)
    _refuse_changed(prepared, task.path)
    return run_prepared_refit(task, prepared, stored_config, deliverer)


def _refuse_changed(prepared: PreparedStudy, path: Path) -> None:
    """Raise ConfigError if the table or a setting has changed since the study began, and
    StudyInUseError while a sweep works on it."""
    study = prepared.config.study
    if study.shared:
        from automl.search.shared_study import (
            refuse_changed_study,  # with what speaks to the database
        )

        refuse_changed_study(study, prepared.rules)
        return
    with StudyDirectory.open(study, must_exist=True):
        Study.open(study, prepared.rules, path).close()


def run_prepared_refit(
    task: RefitTask,
    prepared: PreparedStudy,
    stored_config: str,
    deliverer: DelivererProcess | None = None,
) -> int:
    """Train the trials of a `prepared` study again, as `run_refit` does. The study must not change
    meanwhile."""
    dataset, facts, sizes = _rows(task, prepared)
    n_seeds = task.arguments.seeds
    if sizes is not None:
        checked = _check_on_all_rows(task, prepared, sizes, stored_config)
        if isinstance(checked, int):
            return checked
        task, sizes = checked
    decision = decide_refit(task, sizes, _devices_for_refit(task, prepared))
    for note in decision.notes:
        say_on_stdout(note)
    folder = StudyFiles(task.path).refits / refit_name(task, decision, prepared.identity)
    assigned = assign_members(
        [member.params for member in decision.members], n_seeds, _known_trials(folder)
    )
    own = derive_refit_config(task, decision, folder.name, assigned)
    plan = replace(decision.plan, own_rows=None if facts is None else task.rows)
    if task.ensemble is not None:
        plan = replace(plan, member_of_trial=tuple(assigned))
    elif len(assigned) == 1:
        plan = replace(plan, repeats=(task.members[0].number,))
    inputs = RefitInputs(plan, dataset, facts, None if sizes is None else sizes.before)
    code = run_sweep(own, stored_config, deliverer=deliverer, refit=inputs)
    if code == 0:
        trained = finished_by_member(assigned, n_seeds, _known_trials(folder))
        _refuse_lost(task, trained, resume_command(own))
        _save_refit(task, prepared, folder, trained)
    return code


def _rows(
    task: RefitTask, prepared: PreparedStudy
) -> tuple[Dataset | None, UserDataFacts | None, TrainRowCounts | None]:
    """Return the rows of the final training, or the facts about them if a function of the user's
    gives them.

    All are None for an objective that has its own data.
    """
    config = prepared.config
    if config.objective.kind is not ObjectiveKind.builtin:
        return None, None, None
    if prepared.facts is not None:
        plan = replace(prepared.plan, refit=RefitTraining(own_rows=task.rows))
        facts = describe_user_data(config, plan)
        return None, facts, TrainRowCounts(prepared.facts.n_train, facts.n_train)
    assert prepared.dataset is not None, "the built-in objective is given its data"
    dataset = _load_rows(config, task.rows, prepared.dataset)
    return dataset, None, TrainRowCounts(prepared.dataset.n_train, len(dataset.train))


def _load_rows(config: Config, rows: RefitRows, searched: Dataset) -> Dataset:
    """Return these rows, with the combined columns that the search had."""
    from automl.data.load import load_dataset

    combine = searched.columns.pair_names or "none"
    with announce_reading(config.data):
        dataset = load_dataset(replace(config.data, combine=combine), rows)
    own = searched.users_metric
    own = None if own is None else own.of_classes(dataset.classes)
    return replace(dataset, loss=config.training.value_loss, users_metric=own)


def _check_on_all_rows(
    task: RefitTask, prepared: PreparedStudy, sizes: TrainRowCounts, stored_config: str
) -> tuple[RefitTask, TrainRowCounts] | int:
    """Return the refit as it is best on all training rows, and the row counts that its lengths are
    for. If the check did not come to its end, return its exit code."""
    member = member_to_check(task)
    if member is None:
        if task.config.data.sweep_rows is not None:
            what = "the trial is" if task.ensemble is None else "members are"
            say_on_stdout(f"the search had a part of the rows; {what} trained with its params")
        return task, sizes
    assert prepared.dataset is not None, "the built-in objective is given its data"
    config, own = as_single_family(task.config, member)
    dataset = _load_rows(config, RefitRows(TRAIN_ROWS), prepared.dataset)
    check_sizes = TrainRowCounts(len(prepared.dataset.train), len(dataset.train))
    check = derive_check_config(replace(task, config=config), own, check_sizes, prepared.identity)
    assert check.study.name is not None, "`derive_check_config` names the study"
    folder = Path(check.study.dir) / check.study.name
    n_trials = check.study.decided_n_trials
    if sum(trial.state.is_final for trial in _known_trials(folder).values()) < n_trials:
        say_on_stdout(
            f"trial {member.number} was searched on a part of the rows: {n_trials} trials"
            f" on all {check_sizes.now:,} that train check its learning rate and weight decay"
        )
        code = run_sweep(check, stored_config, refit=RefitInputs(RefitTraining(), dataset))
        if code != 0:
            return code
    record = read_study(folder)
    say_on_stdout(check_summary(own, record, check_sizes))
    if note := unchecked_members_note(task, member.number):
        say_on_stdout(note)
    task, n_checked = take_best_checked(task, member, record, check_sizes)
    return task, replace(sizes, before=n_checked or sizes.before)


def _known_trials(folder: Path) -> Mapping[int, TrialRecord]:
    """Return the trials of a refit's study, none if it has not begun."""
    return read_study(folder).trials if StudyFiles(folder).events.exists() else {}


def _devices_for_refit(task: RefitTask, prepared: PreparedStudy) -> RefitDevices:
    config = task.config
    if task.ensemble is not None:
        return RefitDevices()  # members train beside each other, each on the devices of a trial
    with closing(open_device_reader(prepared.devices)) as reader:
        n_gpus = sum(not address.on_host for address in reader.addresses)
    machine = RefitResources(n_gpus, usable_cores())
    model = as_single_family(config, task.members[0])[0].model
    if config.objective.kind is ObjectiveKind.builtin and isinstance(model, NetworkFamily):
        work = prepared.work(task.members[0].params)
        return devices_for_builtin(task.arguments, machine, work)
    return devices_for_user_code(machine)


def _refuse_lost(task: RefitTask, trained: Sequence[Sequence[int]], command: str) -> None:
    """Raise AutoMLError if a seed of a member has not finished. `command` resumes the refit."""
    n_seeds = task.arguments.seeds
    for member, numbers in zip(task.members, trained, strict=True):
        if len(numbers) < n_seeds:
            n_all, n_there = n_seeds * len(trained), sum(map(len, trained))
            raise AutoMLError(
                f"{n_there} of {n_all} trainings finished, and {REFIT_MODEL_FILE} is not written: "
                f"trial {member.number} is not trained again; what went wrong is above. Go on "
                f"with: {command}"
            )


def _save_refit(
    task: RefitTask, prepared: PreparedStudy, folder: Path, trained: Sequence[Sequence[int]]
) -> None:
    """Write the model file of the trials in `trained`, for each member, and print what it is.
    Raises AutoMLError."""
    config, files, dataset = task.config, StudyFiles(task.path), prepared.dataset
    numbers, ensemble = [member.number for member in task.members], task.ensemble
    if ensemble is not None:
        open_console().table(*members_table(task, trained, read_study(folder)), n_left=2)
    seeds = [
        StudyFiles(folder).checkpoint(number, CheckpointKind.BEST)
        for of_member in trained
        for number in of_member
    ]
    if config.objective.kind is not ObjectiveKind.builtin and not all(s.exists() for s in seeds):
        say_on_stdout(
            f"no checkpoint was given, so that there is no {REFIT_MODEL_FILE}; see "
            f"{os.path.relpath(folder)}"
        )
        return
    best = files.checkpoint(numbers[0], CheckpointKind.BEST)
    searched = best if ensemble is None else files.ensemble  # its threshold of labels is kept
    source = dataset or prepared.facts
    refitted = RefitFacts(
        numbers[0],
        task.arguments.rows,
        task.arguments.seeds,
        "" if source is None else source.digest,
        () if ensemble is None else tuple(numbers),
    )
    assert config.study.name is not None, "a refit is of a study that is there"
    job = RefitFileJob(
        str(files.refit),
        [str(seed) for seed in seeds],
        config.study.name,
        refitted,
        str(searched) if dataset is not None and searched.exists() else None,
        {} if ensemble is None else ensemble.members,
    )
    # The process that writes may load torch.
    with long_step(f"writing {files.refit.name}"):
        call_in_child(ProcessEntry(WRITE, job))
    link_winner(task.path, numbers[0])
    size = files.refit.stat().st_size
    say_on_stdout(f"refitted model: {os.path.relpath(files.refit)} ({size:,} bytes)")
    if dataset is not None:
        _say_score(task, dataset)


def _say_score(task: RefitTask, dataset: Dataset) -> None:
    """Print the score that stands for a refit that has seen all rows: that of the model that it
    repeats, by the study's metric."""
    config, data, rows = task.config, task.config.data, task.arguments.rows
    is_kept = data.kind is DataKind.disc or data.test_path is not None or data.test_fraction > 0
    value, of = task.members[0].value, trial_name(task.members[0].number)
    if task.ensemble is not None:
        value, of = (
            task.ensemble.scores.get(config.study.leading_metric.removeprefix("val_")),
            "the ensemble",
        )
    if value is None or rows == TRAIN_ROWS or (is_kept and rows != ALL_ROWS):
        return
    judged = "out-of-fold" if dataset.folds else "on validation rows"
    say_on_stdout(
        f"it has seen all rows: {config.study.metric} {value:.5g} {judged}, of {of}, stands for it;"
        f" score it on later rows: {study_command('evaluate', config.study)} data.test=FILE"
    )
