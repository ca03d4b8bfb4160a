"""Runs a refit from its checks to `refit.pt`, of one trial or of an ensemble's members.

What is trained, and how, is decided in the other files of this folder. The trainings themselves are
sweeps (`setup/run_sweep.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from automl.config import Config, DataKind, ObjectiveKind
from automl.config.commands import ALL_ROWS, TRAIN_ROWS
from automl.data.dataset import Dataset, RefitRows, UserDataFacts
from automl.devices.device_reader import open_device_reader
from automl.devices.host import usable_cores
from automl.errors import AutoMLError
from automl.execution.child_calls import call_in_child
from automl.models.model_file import RefitFacts, RefitFileJob
from automl.models.networks.network_family import NetworkFamily
from automl.objectives.training_plan import RefitPlan
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory, study_command
from automl.record.study_files import REFIT_MODEL_FILE, StudyFiles
from automl.record.texts import say_on_stdout
from automl.record.trial_record import TrialRecord
from automl.running.display.console import open_console
from automl.running.refit.member_studies import (
    MembersRefitDecision,
    assign_members,
    decide_members_refit,
    derive_members_config,
    finished_by_member,
    members_refit_name,
    members_table,
)
from automl.running.refit.refit_devices import (
    RefitDevices,
    RefitResources,
    devices_for_builtin,
    devices_for_user_code,
)
from automl.running.refit.refit_settings import RefitTask
from automl.running.refit.small_study import (
    RefitDecision,
    TrainRowCounts,
    as_single_family,
    decide_refit,
    derive_refit_config,
    limit_refit_time,
)
from automl.running.refit.winner_check import (
    apply_param_ratios,
    best_checked_winner,
    check_summary,
    derive_check_config,
    find_param_ratios,
    is_check_due,
    member_to_check,
    unchecked_members_note,
)
from automl.running.setup.preparation import announce_reading, describe_user_data, prepare_study
from automl.running.setup.prepared_config import PreparedStudy, RefitInputs
from automl.running.setup.resume_command import resume_command
from automl.running.setup.run_sweep import run_sweep
from automl.search.study import Study
from automl.tracking.deliver.delivery import DelivererProcess
from automl.tracking.long_step import long_step
from automl.trial import CheckpointKind, Params, ProcessEntry, TrialState, trial_name

WRITE = "automl.models.refit_file:write"


def save_refit(job: RefitFileJob) -> None:
    """Write the model file in a process that may load torch, and print its path. Raises
    AutoMLError."""
    path = Path(job.path)
    with long_step(f"writing {path.name}"):
        call_in_child(ProcessEntry(WRITE, job))
    say_on_stdout(f"refitted model: {os.path.relpath(path)} ({path.stat().st_size:,} bytes)")


def report_refit_score(config: Config, dataset: Dataset, value: float, of: str) -> None:
    """Print the score that stands for a refit that has seen all rows.

    It is the score, by the study's metric, of the model `of` that the refit repeats.
    """
    data, rows = config.data, config.refit.rows
    is_kept = data.kind is DataKind.disc or data.test_path is not None or bool(data.test_fraction)
    if rows == TRAIN_ROWS or (is_kept and rows != ALL_ROWS):
        return
    judged = "out-of-fold" if dataset.folds else "on validation rows"
    command = study_command("evaluate", config.study)
    say_on_stdout(
        f"it has seen all rows: {config.study.metric} {value:.5g} {judged}, of {of}, stands for it;"
        f" score it on later rows: {command} data.test_path=FILE"
    )


def refit_members(
    task: RefitTask,
    prepared: PreparedStudy,
    dataset: Dataset,
    sizes: TrainRowCounts,
    stored_config: str,
    deliverer: DelivererProcess | None,
) -> int:
    """Train each member again, and write `refit.pt`. Return the exit code. Raises AutoMLError."""
    assert task.ensemble is not None, "the caller has checked it"
    config = task.config
    members = decide_members_refit(config, task.ensemble, task.members, sizes)
    for note in members.notes:
        say_on_stdout(note)
    folder = StudyFiles(task.path).refits / members_refit_name(config, members, prepared.identity)
    there = StudyFiles(folder).events.exists()
    known = read_study(folder).trials if there else {}
    assigned = assign_members(members.params, config.refit.n_seeds, known)
    own = limit_refit_time(derive_members_config(config, members, folder.name, assigned), task)
    plan = replace(members.plan, member_of_trial=tuple(assigned))
    inputs = RefitInputs(plan, dataset, n_searched=sizes.before)
    code = run_sweep(own, stored_config, deliverer=deliverer, refit=inputs)
    if code == 0:
        record = read_study(folder)
        trained = finished_by_member(assigned, config.refit.n_seeds, record.trials)
        _refuse_lost(members, trained, config.refit.n_seeds, resume_command(own))
        open_console().table(*members_table(task, members, trained, record), n_left=2)
        files = StudyFiles(folder)
        seeds = [str(files.checkpoint(n, CheckpointKind.BEST)) for each in trained for n in each]
        assert config.study.name is not None, "a refit is of a study that is there"
        assert prepared.dataset is not None, "an ensemble is of the built-in training"
        numbers = tuple(members.weights)
        digest = prepared.dataset.digest
        refitted = RefitFacts(numbers[0], config.refit.rows, config.refit.n_seeds, digest, numbers)
        path = str(StudyFiles(task.path).refit)
        searched = str(StudyFiles(task.path).ensemble)  # its threshold of labels is kept
        job = RefitFileJob(path, seeds, config.study.name, refitted, searched, members.weights)
        save_refit(job)
        metric = config.study.metric.removeprefix("val_")
        if metric in task.ensemble.scores:
            value = task.ensemble.scores[metric]
            report_refit_score(config, prepared.dataset, value, "the ensemble")
    return code


def _refuse_lost(
    members: MembersRefitDecision, trained: Sequence[Sequence[int]], n_seeds: int, command: str
) -> None:
    """Raise AutoMLError if a seed of a member has not finished. `command` resumes the refit."""
    for trial, numbers in zip(members.weights, trained, strict=True):
        if len(numbers) < n_seeds:
            n_all, n_there = n_seeds * len(trained), sum(map(len, trained))
            raise AutoMLError(
                f"{n_there} of {n_all} trainings finished, and {REFIT_MODEL_FILE} is not "
                f"written: trial "
                f"{trial} of the ensemble is not trained again; what went wrong is above. Go on "
                f"with: {command}"
            )


def run_refit(task: RefitTask, stored_config: str, deliverer: DelivererProcess | None) -> int:
    """Train the winner again, and write `refit.pt`. Return the exit code. Raises AutoMLError."""
    prepared = prepare_study(task.config)
    _refuse_changed(prepared, task.path)
    return run_prepared_refit(task, prepared, stored_config, deliverer)


def run_prepared_refit(
    task: RefitTask,
    prepared: PreparedStudy,
    stored_config: str,
    deliverer: DelivererProcess | None = None,
) -> int:
    """Train the winner of a `prepared` study again, as `run_refit` does. The study must not change
    meanwhile."""
    config = task.config
    dataset, facts, sizes = _rows(prepared)
    if task.ensemble is not None:
        assert dataset is not None, "an ensemble is of the built-in training"
        assert sizes is not None, "an ensemble is of the built-in training"
        checked_task = _with_members_checked(task, prepared, stored_config)
        if isinstance(checked_task, int):
            return checked_task
        return refit_members(checked_task, prepared, dataset, sizes, stored_config, deliverer)
    config, winner = as_single_family(config, task.winner)
    if sizes is not None and is_check_due(config):
        of_trial = replace(config, refit=replace(config.refit, trial=winner.number))
        checked = _check_winner(of_trial, prepared, winner, stored_config)
        if isinstance(checked, int):
            return checked
        winner, n_checked = checked
        sizes = replace(sizes, before=n_checked)
    decision = decide_refit(
        config, winner, sizes, _devices_for_refit(config, prepared, task.winner.params)
    )
    for note in decision.notes:
        say_on_stdout(note)
    own = limit_refit_time(
        _with_more_tries(derive_refit_config(config, decision, prepared.identity)), task
    )
    rows = None if facts is None else _wanted(config)
    repeats = (decision.trial,) if own.study.total == 1 else ()
    inputs = RefitInputs(replace(decision.plan, own_rows=rows, repeats=repeats), dataset, facts)
    code = run_sweep(own, stored_config, deliverer=deliverer, refit=inputs)
    if code == 0:
        _save_seeds(own, task, decision, prepared)
    return code


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


def _rows(
    prepared: PreparedStudy,
) -> tuple[Dataset | None, UserDataFacts | None, TrainRowCounts | None]:
    """Return the rows of the final training, or the facts about them if a function of the user's
    gives them.

    All are None for an objective that has its own data.
    """
    config = prepared.config
    if config.objective.kind is not ObjectiveKind.builtin:
        return None, None, None
    if prepared.facts is not None:
        plan = replace(prepared.plan, refit=RefitPlan(own_rows=_wanted(config)))
        facts = describe_user_data(config, plan)
        return None, facts, TrainRowCounts(prepared.facts.n_train, facts.n_train)
    assert prepared.dataset is not None, "the built-in objective is given its data"
    from automl.data.load import load_dataset

    with announce_reading(config.data):
        dataset = load_dataset(config.data, _wanted(config))
    dataset = replace(dataset, loss=config.training.value_loss)
    return dataset, None, TrainRowCounts(prepared.dataset.n_train, len(dataset.train))


def _wanted(config: Config) -> RefitRows:
    return RefitRows(config.refit.rows, config.refit.hold_out)


def _check_winner(
    config: Config, prepared: PreparedStudy, winner: TrialRecord, stored_config: str
) -> tuple[TrialRecord, int] | int:
    """Return the winner as it is best on all training rows, and the number of these rows. If the
    check did not come to its end, return its exit code."""
    assert prepared.dataset is not None, "the built-in objective is given its data"
    from automl.data.load import load_dataset

    with announce_reading(config.data):
        dataset = load_dataset(config.data, RefitRows(TRAIN_ROWS))
    dataset = replace(dataset, loss=config.training.value_loss)
    sizes = TrainRowCounts(len(prepared.dataset.train), len(dataset.train))
    own = derive_check_config(config, winner, sizes, prepared.identity)
    assert own.study.name is not None, "`derive_check_config` names the study"
    folder = Path(own.study.dir) / own.study.name
    if not _has_ended(folder, own.study.total):
        say_on_stdout(
            f"trial {winner.number} was searched on a part of the rows: {own.study.total} trials"
            f" on all {sizes.now:,} that train check its learning rate and weight decay"
        )
        code = run_sweep(own, stored_config, refit=RefitInputs(RefitPlan(), dataset))
        if code != 0:
            return code
    record = read_study(folder)
    say_on_stdout(check_summary(winner, record, sizes))
    return best_checked_winner(winner, record, sizes)


def _with_members_checked(
    task: RefitTask, prepared: PreparedStudy, stored_config: str
) -> RefitTask | int:
    """Return the refit with the ensemble as it is best on all training rows. If the check did not
    come to its end, return its exit code."""
    member = member_to_check(task.config, task.members)
    if member is None:
        return task
    config, own = as_single_family(task.config, member)
    checked = _check_winner(config, prepared, own, stored_config)
    if isinstance(checked, int):
        return checked
    assert prepared.dataset is not None, "an ensemble is of the built-in training"
    now, n_checked = checked
    if note := unchecked_members_note(task, member.number):
        say_on_stdout(note)
    return apply_param_ratios(
        task, find_param_ratios(own, now, TrainRowCounts(len(prepared.dataset.train), n_checked))
    )


def _has_ended(folder: Path, n_trials: int) -> bool:
    if not StudyFiles(folder).events.exists():
        return False
    ended = [trial for trial in read_study(folder).trials.values() if trial.state.is_final]
    return len(ended) >= n_trials


def _devices_for_refit(config: Config, prepared: PreparedStudy, params: Params) -> RefitDevices:
    """Return the devices that a training takes. `params` are as the study names them. Raises
    ConfigError."""
    with closing(open_device_reader(prepared.devices)) as reader:
        n_gpus = sum(not address.on_host for address in reader.addresses)
    machine = RefitResources(n_gpus, usable_cores())
    own = config.objective.kind is ObjectiveKind.builtin and isinstance(config.model, NetworkFamily)
    if not own:
        return devices_for_user_code(config.refit, machine)
    return devices_for_builtin(config.refit, machine, prepared.work(params))


def _with_more_tries(own: Config) -> Config:
    """Return the settings with a trial more for each seed that failed before."""
    assert own.study.name is not None, "`derive_refit_config` names the study"
    folder = Path(own.study.dir) / own.study.name
    if not StudyFiles(folder).events.exists():
        return own
    ended = [trial for trial in read_study(folder).trials.values() if trial.state.is_final]
    n_failed = sum(trial.state is not TrialState.FINISHED for trial in ended)
    return replace(own, study=replace(own.study, n_trials=own.refit.n_seeds + n_failed))


def _save_seeds(
    own: Config, task: RefitTask, decision: RefitDecision, prepared: PreparedStudy
) -> None:
    """Write the model file of the seeds. Raises AutoMLError if one has not finished."""
    assert own.study.name is not None, "`derive_refit_config` names the study"
    folder = StudyFiles(task.path).refits / own.study.name
    trials = read_study(folder).trials.values()
    finished = [trial.number for trial in trials if trial.state is TrialState.FINISHED]
    n_seeds = own.refit.n_seeds
    if len(finished) < n_seeds:
        raise AutoMLError(
            f"{len(finished)} of {n_seeds} seeds finished, and {REFIT_MODEL_FILE} is not "
            f"written; what went "
            f"wrong is above. Go on with: {resume_command(own)}"
        )
    seeds = [
        str(StudyFiles(folder).checkpoint(number, CheckpointKind.BEST))
        for number in finished[:n_seeds]
    ]
    if own.objective.kind is not ObjectiveKind.builtin and not _all_there(seeds):
        say_on_stdout(
            f"no checkpoint was given, so that there is no {REFIT_MODEL_FILE}; see "
            f"{os.path.relpath(folder)}"
        )
        return
    path = StudyFiles(task.path).refit
    assert task.config.study.name is not None
    source = prepared.dataset or prepared.facts
    data = "" if source is None else source.digest
    refitted = RefitFacts(decision.trial, own.refit.rows, n_seeds, data)
    best = StudyFiles(task.path).checkpoint(decision.trial, CheckpointKind.BEST)
    searched = str(best) if prepared.dataset is not None and best.exists() else None
    save_refit(RefitFileJob(str(path), seeds, task.config.study.name, refitted, searched))
    if prepared.dataset is not None:
        assert task.winner.value is not None, "a winner has a value"
        report_refit_score(
            task.config, prepared.dataset, task.winner.value, trial_name(decision.trial)
        )


def _all_there(paths: Sequence[str]) -> bool:
    return all(Path(path).exists() for path in paths)
