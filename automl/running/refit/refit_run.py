"""A refit from its checks to `refit.pt`.

A refit of an ensemble: its members trained, and put together with the weights that they have.

`refit.pt`, put into the study.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from automl.config import Config, DataKind, ObjectiveKind
from automl.config.commands import ALL, TRAIN
from automl.data.data_facts import UserDataFacts
from automl.data.dataset import Dataset, RefitRows
from automl.devices.device_reader import open_reader
from automl.devices.host import usable_cores
from automl.errors import AutoMLError
from automl.execution.child_calls import call_in_child
from automl.models.model_file import RefitFacts, RefitFileJob
from automl.models.networks.network_family import NetworkFamily
from automl.objectives.training_plan import RefitPlan
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory, command_line
from automl.record.study_files import REFIT, StudyFiles
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


def save_refit(asked: RefitFileJob) -> None:
    """Write it, in a process that may load torch, and say where it is. Raises AutoMLError."""
    path = Path(asked.path)
    with long_step(f"writing {path.name}"):
        call_in_child(ProcessEntry(WRITE, asked))
    say_on_stdout(f"refitted model: {os.path.relpath(path)} ({path.stat().st_size:,} bytes)")


def report_refit_score(config: Config, dataset: Dataset, value: float, of: str) -> None:
    """Where it has seen all rows: the score that tells of it, which is that `of` what it repeats,
    by the study's metric."""
    data, rows = config.data, config.refit.rows
    is_kept = data.kind is DataKind.disc or data.test_path is not None or bool(data.test_fraction)
    if rows == TRAIN or (is_kept and rows != ALL):
        return
    judged = "out-of-fold" if dataset.folds else "on validation rows"
    again = command_line("evaluate", config.study)
    say_on_stdout(
        f"it has seen all rows: {config.study.metric} {value:.5g} {judged}, of {of}, stands for it;"
        f" score it on later rows: {again} data.test_path=FILE"
    )


def refit_members(
    begun: RefitTask,
    prepared: PreparedStudy,
    dataset: Dataset,
    sizes: TrainRowCounts,
    stored_config: str,
    deliverer: DelivererProcess | None,
) -> int:
    """Train each member again, and write `refit.pt`; returns the exit code. Raises AutoMLError."""
    assert begun.ensemble is not None, "the caller looked"
    config = begun.config
    members = decide_members_refit(config, begun.ensemble, begun.members, sizes)
    for note in members.notes:
        say_on_stdout(note)
    folder = StudyFiles(begun.path).refits / members_refit_name(config, members, prepared.identity)
    there = StudyFiles(folder).events.exists()
    known = read_study(folder).trials if there else {}
    given = assign_members(members.params, config.refit.n_seeds, known)
    own = limit_refit_time(derive_members_config(config, members, folder.name, given), begun)
    plan = replace(members.plan, given=tuple(given))
    asked = RefitInputs(plan, dataset, n_searched=sizes.before)
    code = run_sweep(own, stored_config, deliverer=deliverer, refit=asked)
    if code == 0:
        again = read_study(folder)
        trained = finished_by_member(given, config.refit.n_seeds, again.trials)
        _refuse_lost(members, trained, config.refit.n_seeds, resume_command(own))
        open_console().table(*members_table(begun, members, trained, again), n_left=2)
        files = StudyFiles(folder)
        seeds = [str(files.checkpoint(n, CheckpointKind.BEST)) for each in trained for n in each]
        assert config.study.name is not None, "a refit is of a study that is there"
        assert prepared.dataset is not None, "an ensemble is of the built-in training"
        numbers = tuple(members.weights)
        digest = prepared.dataset.digest
        refitted = RefitFacts(numbers[0], config.refit.rows, config.refit.n_seeds, digest, numbers)
        path = str(StudyFiles(begun.path).refit)
        of = str(StudyFiles(begun.path).ensemble)  # whose threshold of labels is kept
        save_refit(RefitFileJob(path, seeds, config.study.name, refitted, of, members.weights))
        metric = config.study.metric.removeprefix("val_")
        if metric in begun.ensemble.scores:
            value = begun.ensemble.scores[metric]
            report_refit_score(config, prepared.dataset, value, "the ensemble")
    return code


def _refuse_lost(
    members: MembersRefitDecision, trained: Sequence[Sequence[int]], n_seeds: int, again: str
) -> None:
    """Raises AutoMLError where a seed of a member has not finished; `again` is the command that
    goes on."""
    for trial, numbers in zip(members.weights, trained, strict=True):
        if len(numbers) < n_seeds:
            n_all, n_there = n_seeds * len(trained), sum(map(len, trained))
            raise AutoMLError(
                f"{n_there} of {n_all} trainings finished, and {REFIT} is not written: trial "
                f"{trial} of the ensemble is not trained again; what went wrong is above. Go on "
                f"with: {again}"
            )


def run_refit(begun: RefitTask, stored_config: str, deliverer: DelivererProcess | None) -> int:
    """Train the winner again, and write `refit.pt`; returns the exit code. Raises AutoMLError."""
    prepared = prepare_study(begun.config)
    _refuse_changed(prepared, begun.path)
    return run_prepared_refit(begun, prepared, stored_config, deliverer)


def run_prepared_refit(
    begun: RefitTask,
    prepared: PreparedStudy,
    stored_config: str,
    deliverer: DelivererProcess | None = None,
) -> int:
    """The same of a study that is `prepared`, and that nobody else changes meanwhile."""
    config = begun.config
    dataset, facts, sizes = _rows(prepared)
    if begun.ensemble is not None:
        assert dataset is not None, "an ensemble is of the built-in training"
        assert sizes is not None, "likewise"
        asked_for = _with_members_checked(begun, prepared, stored_config)
        if isinstance(asked_for, int):
            return asked_for
        return refit_members(asked_for, prepared, dataset, sizes, stored_config, deliverer)
    config, winner = as_single_family(config, begun.winner)
    if sizes is not None and is_check_due(config):
        of_trial = replace(config, refit=replace(config.refit, trial=winner.number))
        checked = _checked(of_trial, prepared, winner, stored_config)
        if isinstance(checked, int):
            return checked
        winner, n_checked = checked
        sizes = replace(sizes, before=n_checked)
    decided = decide_refit(config, winner, sizes, _taken(config, prepared, begun.winner.params))
    for note in decided.notes:
        say_on_stdout(note)
    own = limit_refit_time(
        _with_more_tries(derive_refit_config(config, decided, prepared.identity)), begun
    )
    rows = None if facts is None else _wanted(config)
    repeats = (decided.trial,) if own.study.total == 1 else ()
    asked = RefitInputs(replace(decided.plan, own_rows=rows, repeats=repeats), dataset, facts)
    code = run_sweep(own, stored_config, deliverer=deliverer, refit=asked)
    if code == 0:
        _keep(own, begun, decided, prepared)
    return code


def _refuse_changed(prepared: PreparedStudy, path: Path) -> None:
    """Raises ConfigError where the table or a setting is not what the study was begun with, and
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
    """The rows of the final training, or what is known of them where a function of the user's gives
    them; None: the objective has its own."""
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


def _checked(
    config: Config, prepared: PreparedStudy, winner: TrialRecord, stored_config: str
) -> tuple[TrialRecord, int] | int:
    """The winner as it is best on all training rows, and how many it was so on; or the exit code of
    a check that has not come to its end."""
    assert prepared.dataset is not None, "the built-in objective is given its data"
    from automl.data.load import load_dataset

    with announce_reading(config.data):
        dataset = load_dataset(config.data, RefitRows(TRAIN))
    dataset = replace(dataset, loss=config.training.value_loss)
    sizes = TrainRowCounts(len(prepared.dataset.train), len(dataset.train))
    own = derive_check_config(config, winner, sizes, prepared.identity)
    assert own.study.name is not None, "made by check.py"
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
    begun: RefitTask, prepared: PreparedStudy, stored_config: str
) -> RefitTask | int:
    """The ensemble as it is best on all training rows; or the exit code of a check that has not
    come to its end."""
    member = member_to_check(begun.config, begun.members)
    if member is None:
        return begun
    config, own = as_single_family(begun.config, member)
    checked = _checked(config, prepared, own, stored_config)
    if isinstance(checked, int):
        return checked
    assert prepared.dataset is not None, "an ensemble is of the built-in training"
    now, n_checked = checked
    if said_too := unchecked_members_note(begun, member.number):
        say_on_stdout(said_too)
    return apply_param_ratios(
        begun, find_param_ratios(own, now, TrainRowCounts(len(prepared.dataset.train), n_checked))
    )


def _has_ended(folder: Path, n_trials: int) -> bool:
    if not StudyFiles(folder).events.exists():
        return False
    ended = [trial for trial in read_study(folder).trials.values() if trial.state.is_final]
    return len(ended) >= n_trials


def _taken(config: Config, prepared: PreparedStudy, params: Params) -> RefitDevices:
    """What a training takes of the machine; `params` are as the study names them. Raises
    ConfigError."""
    with closing(open_reader(prepared.devices)) as reader:
        n_gpus = sum(not address.on_host for address in reader.addresses)
    machine = RefitResources(n_gpus, usable_cores())
    own = config.objective.kind is ObjectiveKind.builtin and isinstance(config.model, NetworkFamily)
    if not own:
        return devices_for_user_code(config.refit, machine)
    return devices_for_builtin(config.refit, machine, prepared.work(params))


def _with_more_tries(own: Config) -> Config:
    """A seed that failed before is not one of those that are asked for."""
    assert own.study.name is not None, "made by derive.py"
    folder = Path(own.study.dir) / own.study.name
    if not StudyFiles(folder).events.exists():
        return own
    ended = [trial for trial in read_study(folder).trials.values() if trial.state.is_final]
    n_failed = sum(trial.state is not TrialState.FINISHED for trial in ended)
    return replace(own, study=replace(own.study, n_trials=own.refit.n_seeds + n_failed))


def _keep(own: Config, begun: RefitTask, decided: RefitDecision, prepared: PreparedStudy) -> None:
    """Write the model file of the seeds. Raises AutoMLError where one has not finished."""
    assert own.study.name is not None, "made by derive.py"
    folder = StudyFiles(begun.path).refits / own.study.name
    trials = read_study(folder).trials.values()
    finished = [trial.number for trial in trials if trial.state is TrialState.FINISHED]
    n_seeds = own.refit.n_seeds
    if len(finished) < n_seeds:
        raise AutoMLError(
            f"{len(finished)} of {n_seeds} seeds finished, and {REFIT} is not written; what went "
            f"wrong is above. Go on with: {resume_command(own)}"
        )
    seeds = [
        str(StudyFiles(folder).checkpoint(number, CheckpointKind.BEST))
        for number in finished[:n_seeds]
    ]
    if own.objective.kind is not ObjectiveKind.builtin and not _all_there(seeds):
        say_on_stdout(
            f"no checkpoint was given, so that there is no {REFIT}; see {os.path.relpath(folder)}"
        )
        return
    path = StudyFiles(begun.path).refit
    assert begun.config.study.name is not None
    given = prepared.dataset or prepared.facts
    data = "" if given is None else given.digest
    refitted = RefitFacts(decided.trial, own.refit.rows, n_seeds, data)
    best = StudyFiles(begun.path).checkpoint(decided.trial, CheckpointKind.BEST)
    searched = str(best) if prepared.dataset is not None and best.exists() else None
    save_refit(RefitFileJob(str(path), seeds, begun.config.study.name, refitted, searched))
    if prepared.dataset is not None:
        assert begun.winner.value is not None, "a winner has a value"
        report_refit_score(
            begun.config, prepared.dataset, begun.winner.value, trial_name(decided.trial)
        )


def _all_there(paths: Sequence[str]) -> bool:
    return all(Path(path).exists() for path in paths)
