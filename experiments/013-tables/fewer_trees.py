"""What do fewer trees cost? The ensemble of a few forests of each table, with shares of its leaves
left: its file, its loss out-of-fold and on rows that it never saw, and the change of the latter.

`thin_forests` (`automl/models/mean_model_file.py`) accepts a rise of a third of a standard error.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import tables
from more_trials import say
from peers import Losses, losses_of
from peers_report import compared

import automl
from automl.api.fit_call import FittedStudy
from automl.models.mean_model_file import (
    EnsembleCandidates,
    EnsembleSelection,
    members_content,
    read_model_file,
    save_model_file,
)
from automl.models.mean_state import ModelState, count_leaves, keep_trees, tree_shares
from automl.models.model_file import SHARPNESS_KEY

SHARES = (0.75, 0.5, 0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--tables", nargs="+", default=["friedman", "loans", "interactions"])
    parser.add_argument("--trials", type=int, default=4)
    asked = parser.parse_args()
    data = asked.data and asked.data.resolve()
    say("| table | leaves | MB | out-of-fold | rise, se | new rows | change, % (95 %) |")
    say("|---|---|---|---|---|---|---|")
    for name in asked.tables:
        split = next(tables.splits(tables.table(name, data), [0]))
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            for row in rows(split, asked.trials):
                say(f"| {name} | {row} |")
            os.chdir("/")


def rows(split: tables.Split, n_trials: int) -> Iterator[str]:
    study = automl.fit(
        split.train,
        tables.TARGET,
        n_trials=n_trials,
        name=split.table,
        overrides=[f"data.task={split.task}", "model.families=[trees]"],
    )
    paths = study.path.glob("checkpoints/trial-*/best.pt")
    models = {int(path.parent.name.removeprefix("trial-")): path for path in sorted(paths)}
    candidates = EnsembleCandidates(study._own_rows().dataset, None)
    for trial, path in models.items():
        candidates.add(trial, str(path))
    selection = candidates.select(models)
    assert selection is not None, "a study has a model"
    states = {trial: read_model_file(models[trial])["state"] for trial in selection.members}
    n_leaves = {trial: count_leaves(state) for trial, state in states.items()}
    total = sum(n_leaves.values())
    before = new_losses(split, study, states, selection)
    yield row(split, total, selection, 0.0, before, before)
    for share in SHARES:
        kept = tree_shares(n_leaves, selection.members, int(share * total))
        fewer = {trial: keep_trees(state, kept[trial]) for trial, state in states.items()}
        thinned, rise = candidates.reselect(selection, fewer)
        n_left = sum(map(count_leaves, fewer.values()))
        yield row(split, n_left, thinned, rise, before, new_losses(split, study, fewer, thinned))


def new_losses(
    split: tables.Split,
    study: FittedStudy,
    states: Mapping[int, ModelState],
    selection: EnsembleSelection,
) -> Losses:
    """By row of the test part, by the file of the ensemble."""
    content = members_content(list(states.values()), selection.members)
    if selection.sharpness != 1.0:
        content["state"] = {**content["state"], SHARPNESS_KEY: selection.sharpness}
    file = Path("fewer.pt").resolve()
    save_model_file(file, {**content, "metrics": {}, "study": split.table}, [])
    model = automl.load(file)
    if split.task == tables.AMOUNTS:
        return losses_of(split, model.predict(split.test), ())[0]
    classes = [str(name) for name in study.model.classes]
    return losses_of(split, np.asarray(model.predict_probabilities(split.test)), classes)[0]


def row(
    split: tables.Split,
    n_leaves: int,
    selection: EnsembleSelection,
    rise: float,
    before: Losses,
    after: Losses,
) -> str:
    squared = split.task == tables.AMOUNTS
    change = (
        "" if after is before else compared(after, before, np.ones(len(after)), squared=squared)
    )
    size = Path("fewer.pt").stat().st_size / 1e6
    loss = float(after.mean()) ** (0.5 if squared else 1)
    judged = selection.scores["loss"]
    return f"{n_leaves:,} | {size:.2f} | {judged:.4f} | {rise:.2f} | {loss:.4g} | {change}"


if __name__ == "__main__":
    main()
