"""Does the score that a study has of itself hold for groups that it never saw, and for days to
come? Studies of each table whose rows belong together or come in order, without and with
`data.group` or `data.time`: the loss of the ensemble on the rows held back, and on fresh rows."""

from __future__ import annotations

import argparse
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt
import tables
from generated import BY_GROUP, BY_TIME
from more_trials import say
from peers import Losses, losses_of

import automl
from automl.record.studies import read_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+", default=[*BY_GROUP, *BY_TIME])
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("overrides", nargs="*", help="settings of automl.fit")
    asked = parser.parse_args()
    say("| table | setting | its own loss | loss on fresh rows | fresh against own, % (± 2 se) |")
    say("|---|---|---|---|---|")
    for name in asked.tables:
        table = tables.table(name)
        structure = "group" if table.group else "time"
        setting = f"data.{structure}={table.group or table.time}"
        for split in tables.splits(table, asked.splits):
            cases = [("none", []), (setting, [setting])]
            if table.time:
                unlearned = "data.rules=6"
                cases.insert(1, (f"{setting} {unlearned}", [setting, unlearned]))
            for label, settings in cases:
                own, fresh = scores(split, asked.trials, [*settings, *asked.overrides])
                group = split.test[table.group] if table.group else split.test.index
                say(f"| {name} | {label} | {row(own, fresh, group.to_numpy())} |")


def scores(split: tables.Split, n_trials: int, overrides: list[str]) -> tuple[float, Losses]:
    """Return the study's own mean loss, and the loss of each fresh row."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        settings = [f"data.task={split.task}", "study.finish=[ensemble,refit]", *overrides]
        study = automl.fit(
            split.train, tables.TARGET, n_trials=n_trials, name="own", overrides=settings
        )
        ensemble = read_study(study.path).ensemble
        assert ensemble is not None, "automl.fit makes one"
        if split.task == tables.AMOUNTS:
            fresh = losses_of(split, study.predict(split.test), ())[0]
        else:
            classes = [str(name) for name in study.model.classes]
            said = np.asarray(study.predict_probabilities(split.test))
            fresh = losses_of(split, said, classes)[0]
        os.chdir("/")
    own = ensemble.scores
    return (own["rmse"] ** 2 if split.task == tables.AMOUNTS else own["loss"]), fresh


def row(own: float, fresh: Losses, group: npt.NDArray[Any]) -> str:
    """Return the cells of one study; the standard error is of the fresh groups (rows) alone."""
    mean, place = fresh.mean(), np.unique(group, return_inverse=True)[1]
    beyond = np.bincount(place, weights=fresh - mean)
    percent, error = 100 * (mean / own - 1), 100 / own * np.sqrt((beyond**2).sum()) / len(fresh)
    return f"{own:.4g} | {mean:.4g} | {percent:+.0f} ± {2 * error:.0f}"


if __name__ == "__main__":
    main()
