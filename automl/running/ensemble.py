"""The ensemble of a study: made of the models that its trials left, and put into its record."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from automl.config import Config, ObjectiveKind, Plots, check
from automl.execution.remote import call_in_child
from automl.record.files import StudyFiles
from automl.record.study import StudyRecord
from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.running.prepared import Prepared
from automl.search.standings import RankedTrial
from automl.tracking.long_step import long_step
from automl.training.auto.family import FAMILY
from automl.training.ensemble.words import EnsembleFile, Made
from automl.trial import CheckpointKind, Ensembled, Entry, Params

WRITE = "automl.training.ensemble.write:write"
LEAST_MODELS = 2
MAX_MODELS = 100
"""The best of a study that are looked at; each is read, and asked about all rows."""
N_OF_EACH = 5
"""Of each family so many are among them, however many of another are better: models that err
otherwise are of more use to each other."""
MAX_RANKED = 1_000
"""So many of the best trials are looked through for that."""


def in_child(asked: EnsembleFile) -> Made:
    """Write the file, in a process of its own. Raises AutoMLError."""
    made = call_in_child(Entry(WRITE, asked))
    assert isinstance(made, Made)
    return made


def build_of(prepared: Prepared) -> str | None:
    """What builds a network of the user's."""
    target = prepared.plan.family.users_target
    return None if target is None else target[1]


def worth_joining(ranking: Sequence[TrialRecord] | Sequence[RankedTrial]) -> list[int]:
    """The trials whose models an ensemble is chosen from, the best first."""
    n_of: Counter[object] = Counter()
    firsts = set()
    for trial in ranking:
        n_of[family := trial.params.get(FAMILY)] += 1
        if n_of[family] <= N_OF_EACH:
            firsts.add(trial.number)
    others = [trial.number for trial in ranking if trial.number not in firsts]
    chosen = {*firsts, *others[: max(0, MAX_MODELS - len(firsts))]}
    return [trial.number for trial in ranking if trial.number in chosen]


def made(
    prepared: Prepared,
    path: Path,
    record: StudyRecord,
    *,
    draws: bool,
    say: Callable[[str], None],
    write: Callable[[EnsembleFile], Made] = in_child,
) -> Ensembled | None:
    """Write `ensemble.pt` into the study at `path`; None: it has not two models to join. `draws`:
    pictures of what it found, too, as where there are some already, unless the study wants none.

    Raises AutoMLError for models that cannot be read.
    """
    dataset, files = prepared.dataset, StudyFiles(path)
    if dataset is None:
        return None
    ranked = worth_joining(record.ranking()[:MAX_RANKED])
    models = {n: files.checkpoint(n, CheckpointKind.BEST) for n in ranked}
    there = {n: str(file) for n, file in models.items() if file.exists()}
    if len(there) < LEAST_MODELS:
        return None
    draws = prepared.config.study.plots is Plots.auto and (draws or files.plots.exists())
    plots = str(files.plots) if draws else None
    asked = EnsembleFile(str(files.ensemble), there, dataset, path.name, build_of(prepared), plots)
    drawing = " and drawing what it found" * (plots is not None)
    with long_step(f"making the ensemble of {len(there)} models{drawing}", say):
        written = write(asked)
    if written.not_drawn:
        say(f"not drawn: {fit_line(written.not_drawn)}")
    return Ensembled(
        time.time(),
        len(dataset.judged),
        written.members,
        written.scores,
        written.rows_per_second,
        written.alone,
    )


def refuse_others(config: Config) -> None:
    """Raises ConfigError for a study whose models only its author knows."""
    kind = config.objective.kind
    check(
        kind is ObjectiveKind.builtin,
        "objective",
        kind.name,
        "the models of such a study are not known; an ensemble is of the built-in training's.",
    )


def score_of(scores: Mapping[str, float], metric: str) -> tuple[str, float]:
    """By the metric of a study, where that is one of the built-in training's, else the loss."""
    name = metric.removeprefix("val_")
    known = name if name in scores else "loss"
    return known, scores[known]


def lines_of(event: Ensembled, record: StudyRecord, choice: str | None, path: Path) -> list[str]:
    """What is said of it."""
    known, score = score_of(event.scores, record.metric.name)
    on = f"{event.n_rows:,} rows that none of them trained on"
    best = record.best()
    than = ""
    if best is not None:
        own = event.alone.get(best.number, {})  # of several divisions its value is their mean
        name, theirs = (known, own[known]) if known in own else (record.metric.name, best.value)
        than = f"; the best trial's {name} is {theirs:.5g}"
    value = f"{known} {score:.5g} on {on}{than}"
    where = os.path.relpath(StudyFiles(path).ensemble)
    plots = StudyFiles(path).plots
    found = [f"what it found: {os.path.relpath(plots)}"] if plots.exists() else []
    return [f"{_named(event, record, choice)}: {value}", f"ensemble: {where}", *found]


def _named(event: Ensembled, record: StudyRecord, choice: str | None) -> str:
    first, *others = event.members
    if not others:
        return f"ensemble of trial {first} alone, which no other makes better"
    kinds = Counter(_kind(record.trials[n].params, choice) for n in event.members)
    of = "" if choice is None else f" ({_counted(kinds)})"
    return f"ensemble of {len(event.members)} models{of}"


def _kind(params: Params, choice: str | None) -> str:
    return "" if choice is None else str(params.get(choice))


def _counted(kinds: Mapping[str, int]) -> str:
    named: Iterable[str] = (f"{n} {kind}" for kind, n in Counter(kinds).most_common())
    return ", ".join(named)
