"""A refit of an ensemble: its members trained, and put together with the weights that they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from automl.data.dataset import Dataset
from automl.errors import AutoMLError
from automl.record.files import REFIT, StudyFiles
from automl.record.studies import read_study
from automl.running.console import open_console
from automl.running.going_on import how_to_go_on
from automl.running.prepared import Prepared, Refit
from automl.running.refit.begin import Begun
from automl.running.refit.derive import Sizes, within
from automl.running.refit.keeping import keep, say_what_stands_for_it
from automl.running.refit.members import (
    MembersAgain,
    derived_members,
    finished,
    given_to,
    members_of,
    name_of,
)
from automl.running.refit.members_table import table_of
from automl.running.run import run_sweep
from automl.tracking.delivery import DelivererProcess
from automl.tracking.say import say_on_stdout
from automl.training.refitted import RefitFile, Refitted
from automl.trial import CheckpointKind


def refit_members(
    begun: Begun,
    prepared: Prepared,
    dataset: Dataset,
    sizes: Sizes,
    stored_config: str,
    deliverer: DelivererProcess | None,
) -> int:
    """Train each member again, and write `refit.pt`; returns the exit code. Raises AutoMLError."""
    assert begun.ensemble is not None, "the caller looked"
    config = begun.config
    members = members_of(config, begun.ensemble, begun.members, sizes)
    for note in members.notes:
        say_on_stdout(note)
    folder = StudyFiles(begun.path).refits / name_of(config, members, prepared.identity)
    there = StudyFiles(folder).events.exists()
    known = read_study(folder).trials if there else {}
    given = given_to(members.params, config.refit.n_seeds, known)
    own = within(derived_members(config, members, folder.name, given), begun)
    plan = replace(members.plan, given=tuple(given))
    asked = Refit(plan, dataset, n_searched=sizes.before)
    code = run_sweep(own, stored_config, deliverer=deliverer, refit=asked)
    if code == 0:
        again = read_study(folder)
        trained = finished(given, config.refit.n_seeds, again.trials)
        _refuse_lost(members, trained, config.refit.n_seeds, how_to_go_on(own))
        open_console().table(*table_of(begun, members, trained, again), n_left=2)
        files = StudyFiles(folder)
        seeds = [str(files.checkpoint(n, CheckpointKind.BEST)) for each in trained for n in each]
        assert config.study.name is not None, "a refit is of a study that is there"
        assert prepared.dataset is not None, "an ensemble is of the built-in training"
        numbers = tuple(members.weights)
        digest = prepared.dataset.digest
        refitted = Refitted(numbers[0], config.refit.rows, config.refit.n_seeds, digest, numbers)
        path = str(StudyFiles(begun.path).refit)
        of = str(StudyFiles(begun.path).ensemble)  # whose threshold of labels is kept
        keep(RefitFile(path, seeds, config.study.name, refitted, of, members.weights))
        metric = config.study.metric.removeprefix("val_")
        if metric in begun.ensemble.scores:
            value = begun.ensemble.scores[metric]
            say_what_stands_for_it(config, prepared.dataset, value, "the ensemble")
    return code


def _refuse_lost(
    members: MembersAgain, trained: Sequence[Sequence[int]], n_seeds: int, again: str
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
