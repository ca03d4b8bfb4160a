"""Whether a part of the rows ranks trials as more rows do (`data.sweep_rows`).

Nobody has trained on all rows yet, and to do so is what a part saves. So one looks the other way:
the best trials are trained again on a quarter and on a half of the part, and scored on the same
rows as ever. Where the order is the same from a half on, or earlier, more rows need not change it
either; where it changes up to the last, the part may be too small to choose by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.commands.which_model import Choice, best_file, builder, open_model
from automl.config import Config
from automl.data.evaluation import Evaluation, loss_of, with_share
from automl.record.study import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.training.plan import SessionSetup, TrainingPlan
from automl.trial import TrialState

N_TRIALS = 3
"""Whose order is looked at, where none are named."""
SHARES = (0.25, 0.5)
"""Of the rows that trials train on."""
LEAST_ROWS = 40
"""Of which a quarter can still be trained on."""


@dataclass(frozen=True)
class Ranked:
    """Losses of trials by the share of the part that they were trained on, all of it last."""

    trials: tuple[int, ...]
    n_rows: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]
    """A row for each number of rows, a column for each trial."""


def compared(config: Config, record: StudyRecord) -> list[TrialRecord]:
    """Finished trials, the best first: pruned ones were trained for shorter."""
    numbers = config.evaluate.trials
    finished = [t for t in record.ranking() if t.state is TrialState.FINISHED]
    return [t for t in finished if t.number in numbers] if numbers else finished[:N_TRIALS]


def ranked(
    trials: Sequence[TrialRecord], evaluation: Evaluation, directory: Path, config: Config
) -> Ranked:
    """Train the trials again on the shares, and score them beside their own models.

    Raises AutoMLError.
    """
    from automl.training.retrain import retrained

    plan, rows = TrainingPlan.of(config), evaluation.part.rows
    build = builder(config)
    own = [open_model(config, Choice(best_file(directory, trial), trial)) for trial in trials]
    n_rows, losses = [], []
    for share in SHARES:
        part = with_share(evaluation, share, config.data.split_seed)
        setup = SessionSetup(plan, part.dataset, config.execution.threads_per_trial)
        models = [
            retrained(setup, trial.number, trial.params, config.study.seed, build)
            for trial in trials
        ]
        n_rows.append(len(part.dataset.train))
        losses.append(tuple(loss_of(part, model.outputs(rows)) for model in models))
    return Ranked(
        tuple(trial.number for trial in trials),
        (*n_rows, len(evaluation.dataset.train)),
        (*losses, tuple(loss_of(evaluation, model.predictor.outputs(rows)) for model in own)),
    )


def said(found: Ranked) -> str:
    """What it means, in a sentence."""
    orders = [tuple(sorted(range(len(row)), key=row.__getitem__)) for row in found.losses]
    n_same = next(i for i in range(len(orders)) if len(set(orders[i:])) == 1)
    if n_same < len(orders) - 1:
        return (
            f"their order is the same from {found.n_rows[n_same]:,} rows on: more rows have not "
            "changed it"
        )
    best = {found.trials[order[0]] for order in orders[-2:]}
    if len(best) == 1:
        return f"trial {best.pop()} is the best on a half and on all; the order behind it changes"
    return (
        f"on {found.n_rows[-2]:,} rows another trial is the best than on {found.n_rows[-1]:,}: "
        "the part may be too small to choose by; take a larger data.sweep_rows in a new study"
    )
