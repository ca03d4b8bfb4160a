"""The table that ends a refit of an ensemble: its members by their weight. Pure.

Each descends a loss of its own on rows that all of them train on, so that their losses there are no
ranking; how good each is on rows that it has not seen was told by the search.
"""

from __future__ import annotations

from collections.abc import Sequence

from automl.record.study import StudyRecord
from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.running.readable import clock
from automl.running.refit.begin import Begun
from automl.running.refit.members import MembersAgain
from automl.training.family import Family, name_of


def table_of(
    begun: Begun, members: MembersAgain, trained: Sequence[Sequence[int]], again: StudyRecord
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Columns and rows, of which the first two are words: `trained` are the trials of the refit,
    whose record is `again`, that each member became."""
    keeps_last, metric = members.plan.keeps_last, fit_line(begun.config.study.metric)
    columns = ["trial", "family", "weight", f"{metric} searched", "epochs", "time"]
    rows = []
    for member, numbers in zip(begun.members, trained, strict=True):
        seeds = [again.trials[number] for number in numbers]
        row = [
            f"{member.number:>5}",
            _family(begun, member),
            f"{members.weights[member.number]:.3f}",
            _mean([member.value]),
            _epochs(seeds, keeps_last=keeps_last),
            clock(sum((seed.ended or seed.started) - seed.started for seed in seeds)),
        ]
        rows.append(row if keeps_last else [*row, _mean([seed.value for seed in seeds])])
    return columns if keeps_last else [*columns, f"{metric} held out"], rows


def _family(begun: Begun, member: TrialRecord) -> str:
    assert isinstance(begun.config.model, Family), "Hydra makes it by its schema"
    return name_of(begun.config.model.of(member.params)[0])


def _epochs(seeds: Sequence[TrialRecord], *, keeps_last: bool) -> str:
    """Those after which each seed's model is kept."""
    steps = [seed.last_step if keeps_last else seed.best_step or 0 for seed in seeds]
    return " to ".join(dict.fromkeys(f"{step + 1}" for step in (min(steps), max(steps))))


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.5g}" if known else ""
