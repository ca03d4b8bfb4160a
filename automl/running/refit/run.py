"""A refit from its checks to `refit.pt`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from automl.config import Config, ObjectiveKind
from automl.config.refit import TRAIN
from automl.data.dataset import Dataset, RefitRows
from automl.data.facts import DataFacts
from automl.devices.host import usable_cores
from automl.devices.reader import open_reader
from automl.errors import AutoMLError
from automl.record.directory import StudyDirectory
from automl.record.files import REFIT, StudyFiles
from automl.record.studies import read_study
from automl.record.trial_record import TrialRecord
from automl.running.going_on import how_to_go_on
from automl.running.prepare import described, prepare, reading
from automl.running.prepared import Prepared, Refit
from automl.running.refit.begin import Begun
from automl.running.refit.check import best_of, checking, is_due, said
from automl.running.refit.check_members import change_of, changed, others_said, to_check
from automl.running.refit.derive import Again, Sizes, again, derived, of_its_family, within
from automl.running.refit.devices import Machine, Taken, taken, users
from automl.running.refit.keeping import keep, say_what_stands_for_it
from automl.running.refit.run_members import refit_members
from automl.running.run import run_sweep
from automl.search.study import Study
from automl.tracking.delivery import DelivererProcess
from automl.tracking.say import say_on_stdout
from automl.training.network_family import NetworkFamily
from automl.training.plan import RefitPlan
from automl.training.refitted import RefitFile, Refitted
from automl.trial import CheckpointKind, Params, TrialState, trial_name


def refit(begun: Begun, stored_config: str, deliverer: DelivererProcess | None) -> int:
    """Train the winner again, and write `refit.pt`; returns the exit code. Raises AutoMLError."""
    prepared = prepare(begun.config)
    _refuse_changed(prepared, begun.path)
    return trained_again(begun, prepared, stored_config, deliverer)


def trained_again(
    begun: Begun,
    prepared: Prepared,
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
    config, winner = of_its_family(config, begun.winner)
    if sizes is not None and is_due(config):
        of_trial = replace(config, refit=replace(config.refit, trial=winner.number))
        checked = _checked(of_trial, prepared, winner, stored_config)
        if isinstance(checked, int):
            return checked
        winner, n_checked = checked
        sizes = replace(sizes, before=n_checked)
    decided = again(config, winner, sizes, _taken(config, prepared, begun.winner.params))
    for note in decided.notes:
        say_on_stdout(note)
    own = within(_with_more_tries(derived(config, decided, prepared.identity)), begun)
    rows = None if facts is None else _wanted(config)
    repeats = (decided.trial,) if own.study.total == 1 else ()
    asked = Refit(replace(decided.plan, own_rows=rows, repeats=repeats), dataset, facts)
    code = run_sweep(own, stored_config, deliverer=deliverer, refit=asked)
    if code == 0:
        _keep(own, begun, decided, prepared)
    return code


def _refuse_changed(prepared: Prepared, path: Path) -> None:
    """Raises ConfigError where the table or a setting is not what the study was begun with, and
    StudyInUseError while a sweep works on it."""
    study = prepared.config.study
    if study.shared:
        from automl.search.shared_study import refuse_changed  # with what speaks to the database

        refuse_changed(study, prepared.rules)
        return
    with StudyDirectory.open(study, must_exist=True):
        Study.open(study, prepared.rules, path).close()


def _rows(prepared: Prepared) -> tuple[Dataset | None, DataFacts | None, Sizes | None]:
    """The rows of the final training, or what is known of them where a function of the user's gives
    them; None: the objective has its own."""
    config = prepared.config
    if config.objective.kind is not ObjectiveKind.builtin:
        return None, None, None
    if prepared.facts is not None:
        plan = replace(prepared.plan, refit=RefitPlan(own_rows=_wanted(config)))
        facts = described(config, plan)
        return None, facts, Sizes(prepared.facts.n_train, facts.n_train)
    assert prepared.dataset is not None, "the built-in objective is given its data"
    from automl.data.load import load_dataset

    with reading(config.data):
        dataset = load_dataset(config.data, _wanted(config))
    dataset = replace(dataset, loss=config.training.value_loss)
    return dataset, None, Sizes(prepared.dataset.n_train, len(dataset.train))


def _wanted(config: Config) -> RefitRows:
    return RefitRows(config.refit.rows, config.refit.hold_out)


def _checked(
    config: Config, prepared: Prepared, winner: TrialRecord, stored_config: str
) -> tuple[TrialRecord, int] | int:
    """The winner as it is best on all training rows, and how many it was so on; or the exit code of
    a check that has not come to its end."""
    assert prepared.dataset is not None, "the built-in objective is given its data"
    from automl.data.load import load_dataset

    with reading(config.data):
        dataset = load_dataset(config.data, RefitRows(TRAIN))
    dataset = replace(dataset, loss=config.training.value_loss)
    sizes = Sizes(len(prepared.dataset.train), len(dataset.train))
    own = checking(config, winner, sizes, prepared.identity)
    assert own.study.name is not None, "made by check.py"
    folder = Path(own.study.dir) / own.study.name
    if not _has_ended(folder, own.study.total):
        say_on_stdout(
            f"trial {winner.number} was searched on a part of the rows: {own.study.total} trials"
            f" on all {sizes.now:,} that train check its learning rate and weight decay"
        )
        code = run_sweep(own, stored_config, refit=Refit(RefitPlan(), dataset))
        if code != 0:
            return code
    record = read_study(folder)
    say_on_stdout(said(winner, record, sizes))
    return best_of(winner, record, sizes)


def _with_members_checked(begun: Begun, prepared: Prepared, stored_config: str) -> Begun | int:
    """The ensemble as it is best on all training rows; or the exit code of a check that has not
    come to its end."""
    member = to_check(begun.config, begun.members)
    if member is None:
        return begun
    config, own = of_its_family(begun.config, member)
    checked = _checked(config, prepared, own, stored_config)
    if isinstance(checked, int):
        return checked
    assert prepared.dataset is not None, "an ensemble is of the built-in training"
    now, n_checked = checked
    if said_too := others_said(begun, member.number):
        say_on_stdout(said_too)
    return changed(begun, change_of(own, now, Sizes(len(prepared.dataset.train), n_checked)))


def _has_ended(folder: Path, n_trials: int) -> bool:
    if not StudyFiles(folder).events.exists():
        return False
    ended = [trial for trial in read_study(folder).trials.values() if trial.state.is_final]
    return len(ended) >= n_trials


def _taken(config: Config, prepared: Prepared, params: Params) -> Taken:
    """What a training takes of the machine; `params` are as the study names them. Raises
    ConfigError."""
    with closing(open_reader(prepared.devices)) as reader:
        n_gpus = sum(not address.on_host for address in reader.addresses)
    machine = Machine(n_gpus, usable_cores())
    own = config.objective.kind is ObjectiveKind.builtin and isinstance(config.model, NetworkFamily)
    if not own:
        return users(config.refit, machine)
    return taken(config.refit, machine, prepared.work(params))


def _with_more_tries(own: Config) -> Config:
    """A seed that failed before is not one of those that are asked for."""
    assert own.study.name is not None, "made by derive.py"
    folder = Path(own.study.dir) / own.study.name
    if not StudyFiles(folder).events.exists():
        return own
    ended = [trial for trial in read_study(folder).trials.values() if trial.state.is_final]
    n_failed = sum(trial.state is not TrialState.FINISHED for trial in ended)
    return replace(own, study=replace(own.study, n_trials=own.refit.n_seeds + n_failed))


def _keep(own: Config, begun: Begun, decided: Again, prepared: Prepared) -> None:
    """Write the model file of the seeds. Raises AutoMLError where one has not finished."""
    assert own.study.name is not None, "made by derive.py"
    folder = StudyFiles(begun.path).refits / own.study.name
    trials = read_study(folder).trials.values()
    finished = [trial.number for trial in trials if trial.state is TrialState.FINISHED]
    n_seeds = own.refit.n_seeds
    if len(finished) < n_seeds:
        raise AutoMLError(
            f"{len(finished)} of {n_seeds} seeds finished, and {REFIT} is not written; what went "
            f"wrong is above. Go on with: {how_to_go_on(own)}"
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
    refitted = Refitted(decided.trial, own.refit.rows, n_seeds, data)
    best = StudyFiles(begun.path).checkpoint(decided.trial, CheckpointKind.BEST)
    searched = str(best) if prepared.dataset is not None and best.exists() else None
    keep(RefitFile(str(path), seeds, begun.config.study.name, refitted, searched))
    if prepared.dataset is not None:
        assert begun.winner.value is not None, "a winner has a value"
        say_what_stands_for_it(
            begun.config, prepared.dataset, begun.winner.value, trial_name(decided.trial)
        )


def _all_there(paths: Sequence[str]) -> bool:
    return all(Path(path).exists() for path in paths)
