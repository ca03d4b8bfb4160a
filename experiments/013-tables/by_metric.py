"""Is an ensemble better by error or AUC where its members are selected by that, and labels better
where they go by a threshold that was found? Replayed on what `portfolio.py --outputs` recorded: no
model has trained on the rows that judge or on the test rows, which are divided anew each time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from automl.data.scoring.label_thresholds import _best_of_two, _usual_thresholds, best_threshold
from automl.data.scoring.metrics import ClassPredictions
from automl.models.ensemble_selection import _best_alone, _greedy, select_ensemble
from automl.models.mean_model import class_probabilities
from automl.models.selection_costs import LabelCosts, RowCosts, class_costs

Floats = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]
LEAST = 1e-15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="what portfolio.py wrote, --out")
    parser.add_argument("--divisions", type=int, default=4)
    parser.add_argument("--judged", type=int, default=600, help="rows that judge, at most")
    asked = parser.parse_args()
    ways, cuts = [], []
    for folder in sorted(p for each in asked.folders for p in each.glob("outputs/*")):
        if (found := read(folder)) is None:
            continue
        shares, y = found
        by_way, by_cut = [], []
        for number in range(asked.divisions):
            drawn = np.random.default_rng(number).permutation(len(y))
            n = min(asked.judged, len(y) // 2)
            table = shares[:, drawn], y[drawn], n
            by_way.append(list(of_ways(*table)))
            if shares.shape[2] == 2:
                by_cut.append(of_thresholds(*table))
        ways.append(np.mean(by_way, axis=0))
        cuts += [np.mean(by_cut, axis=0)] if by_cut else []
        say(f"{folder.name}: {len(shares)} models, {ways[-1].round(4).tolist()}")
    shown("selection", list(SELECTIONS), np.array(ways), ("error", "1 - AUC", "log-loss"))
    shown("threshold", list(CUTS), np.array(cuts)[:, :, None], ("error",), base=0)
    shown("threshold", list(BALANCED), np.array(cuts)[:, len(CUTS) :, None], ("1 - balanced",))


def read(folder: Path) -> tuple[Floats, Classes] | None:
    """Return what the models say (M, N, C) and the classes; None of a table of amounts."""
    said, y = [], np.empty(0)
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            if arrays["judged"].shape[1] < 2:
                return None
            outputs = np.concatenate([arrays["judged"], arrays["test"]]).astype(float)
            y = np.concatenate([arrays["judged_y"], arrays["test_y"]])
        if np.isfinite(outputs).all():
            said.append(class_probabilities(outputs))
    return np.stack(said), y.astype(np.int64)


def by_loss(loss: RowCosts, _: LabelCosts) -> Floats:
    return _greedy(loss, np.arange(loss.n_rows))


def by_metric(_: RowCosts, own: LabelCosts) -> Floats:
    return _greedy(own, np.arange(own.n_rows))


def alone(_: RowCosts, own: LabelCosts) -> Floats:
    return _best_alone(own, np.arange(own.n_rows))


def as_a_study(loss: RowCosts, own: LabelCosts) -> Floats:
    return np.array(select_ensemble(loss, own).weights)


WAYS: Mapping[str, Callable[[RowCosts, LabelCosts], Floats]] = {
    "by the metric": by_metric,
    "the best alone": alone,
    "what a study takes": as_a_study,
}
SELECTIONS = ("by the loss", *(f"{m}: {way}" for m in ("error", "auc") for way in WAYS))


def of_ways(shares: Floats, y: Classes, n: int) -> Iterator[Sequence[float]]:
    """Yield the scores of each selection on the rows that did not choose it."""
    judged, loss = shares[:, :n], class_costs(shares[:, np.arange(n), y[:n]])
    own = {metric: LabelCosts(judged, y[:n], metric) for metric in ("error", "auc")}
    yield scores(by_loss(loss, own["error"]), shares[:, n:], y[n:])
    for metric in own:
        for way in WAYS.values():
            yield scores(way(loss, own[metric]), shares[:, n:], y[n:])


def scores(weights: Floats, shares: Floats, y: Classes) -> Sequence[float]:
    mean = np.tensordot(weights, shares, axes=1)
    found = ClassPredictions(np.log(mean.clip(LEAST)), y).scored(["error", "auc", "loss"])
    return found["error"], 1 - found["auc"], found["loss"]


CUTS = ("a half", "the best on the rows that judge", "what an ensemble takes")
BALANCED = ("the share of the class", *CUTS[1:], CUTS[0])


def of_thresholds(shares: Floats, y: Classes, n: int) -> Sequence[float]:
    """Return the errors by thresholds of the ensemble by the loss, then what the balanced accuracy
    lacks."""
    weights = by_loss(class_costs(shares[:, np.arange(n), y[:n]]), None)  # type: ignore[arg-type]
    second, fresh = np.tensordot(weights, shares[:, :, 1], axes=1), y[n:]
    judged, new = (second[:n], y[:n]), second[n:]
    errors = [
        float(((new > cut) != fresh).mean())
        for cut in (0.5, _best_of_two(*judged, "error"), best_threshold(*judged, "error"))
    ]
    metric = "balanced_accuracy"
    cuts = (
        _usual_thresholds(*judged, metric),
        _best_of_two(*judged, metric),
        best_threshold(*judged, metric),
        0.5,
    )
    right = [[((new > cut) == fresh)[fresh == c].mean() for c in (0, 1)] for cut in cuts]
    return [*errors, *(1 - float(np.mean(each)) for each in right)]


def shown(
    what: str, names: Sequence[str], found: Floats, metrics: Sequence[str], base: int = 0
) -> None:
    """Say the change against the first line in percent, the mean of the tables ± two standard
    errors."""
    ratio = 100 * (found[:, : len(names)] / found[:, base : base + 1].clip(1e-9) - 1)
    means, errors = ratio.mean(axis=0), 2 * ratio.std(axis=0, ddof=1) / np.sqrt(len(ratio))
    say(f"| {what} | {' | '.join(metrics)} |")
    say("|---" * (1 + len(metrics)) + "|")
    for name, mean, error in zip(names, means, errors, strict=True):
        cells = [f"{m:+.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True)]
        say(f"| {name} | {' | '.join(cells)} |")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
