"""Which ensemble of a table of few rows is the best on new ones, and does it stay so with more
trials? The models of one study of each table, joined in several ways by what the rows say that none
of them trained on."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tables
from peers import Losses, losses_of

import automl
from automl.api.fit_call import FittedStudy
from automl.models import ensemble_selection
from automl.models.mean_model_file import EnsembleCandidates
from automl.models.selection_costs import class_costs, value_costs

FEW = ("horse-colic", "iris", "wine")
WAYS: Mapping[str, Callable[..., Any]] = {
    "one greedy selection": ensemble_selection._greedy,
    "the best five": ensemble_selection._floor,
    "mean of 20 selections": ensemble_selection._sampled,
}
CHOSEN = "what the study takes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--tables", nargs="+", default=FEW)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--trials", type=int, nargs="+", default=[20, 80])
    asked = parser.parse_args()
    data = asked.data and asked.data.resolve()
    names = [*WAYS, CHOSEN]
    say(f"| table, division | {' | '.join(names)} |")
    say("|---" * (1 + len(names)) + "|")
    relative = []
    for name in asked.tables:
        for split in tables.splits(tables.table(name, data), asked.splits):
            known = models_of(split, max(asked.trials))
            found = np.array([losses(known.up_to(n)) for n in asked.trials])
            cells = [" → ".join(f"{loss:.4f}" for loss in of) for of in found.T]
            say(f"| {name}, {split.number} | {' | '.join(cells)} |")
            relative.append(np.log(found / found[0, 0]))
    means = 100 * np.mean(relative, axis=0)
    cells = [" → ".join(f"{change:+.1f}" for change in of) for of in means.T]
    say(f"| mean against the first, % | {' | '.join(cells)} |")


@dataclass(frozen=True, eq=False)
class Models:
    """What the models of a study say."""

    split: tables.Split
    numbers: Losses
    """Of their trials."""
    judged: Losses
    """(M, N) of the rows that none of them trained on: what `select` takes."""
    y: Losses
    test: Losses
    """(M, rows) or (M, rows, classes) of the test part."""
    classes: tuple[str, ...]

    def up_to(self, n_trials: int) -> Models:
        those = self.numbers < n_trials
        kept = self.numbers[those], self.judged[those], self.y, self.test[those]
        return Models(self.split, *kept, self.classes)


def losses(models: Models) -> list[float]:
    """On the test part, of each way."""
    regression = models.split.task == tables.AMOUNTS
    costs = value_costs(models.judged, models.y) if regression else class_costs(models.judged)
    weights = [way(costs, np.arange(costs.n_rows)) for way in WAYS.values()]
    weights.append(np.array(ensemble_selection.select_ensemble(costs).weights))
    return [loss(models, np.tensordot(each, models.test, axes=1)) for each in weights]


def loss(models: Models, said: Losses) -> float:
    mean = float(losses_of(models.split, said, models.classes)[0].mean())
    return mean**0.5 if models.split.task == tables.AMOUNTS else mean


def models_of(split: tables.Split, n_trials: int) -> Models:
    """A study of the table, all of whose models are asked."""
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        study = automl.fit(
            *(split.train, tables.TARGET),
            n_trials=n_trials,
            name=split.table,
            overrides=[f"data.task={split.task}"],
        )
        found = asked_all(split, study)
        os.chdir("/")
    return found


def asked_all(split: tables.Split, study: FittedStudy) -> Models:
    dataset = study._own_rows().dataset
    candidates = EnsembleCandidates(dataset, None)
    numbers, judged, test = [], [], []
    for path in sorted(study.path.glob("checkpoints/trial-*/best.pt")):
        number = int(path.parent.name.removeprefix("trial-"))
        candidates.add(number, str(path))
        if number not in candidates._outputs:
            continue
        model = candidates.model(str(path))
        amounts = split.task == tables.AMOUNTS
        says = model.predict if amounts else model.predict_probabilities
        numbers.append(number)
        judged.append(candidates._costs([candidates._outputs[number]]).predictions[0])
        test.append(np.asarray(says(split.test)))
    y, classes = dataset.judged.y.astype(np.float64), tuple(map(str, study.model.classes))
    return Models(split, np.array(numbers), np.stack(judged), y, np.stack(test), classes)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
