"""Does a study by `val_mae` gain where its models descend absolute errors in place of squared ones?

Trains the same params of each family with both losses on the tables of amounts, each judged by
`val_mae`, and compares the MAE on test rows: of each family's best trial, and of the ensembles of
all. Families without that loss train squared errors in both. A line of JSON each, so that what was
interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tables
from families import OneFamily
from portfolio import candidates, config_of

from automl.config.metrics import ValueLoss
from automl.data.scoring.evaluation import open_evaluation
from automl.models.ensemble_selection import select_ensemble
from automl.models.predictor import load_table_model
from automl.models.selection_costs import value_costs
from automl.record.study_files import BEST_CHECKPOINT_FILE

LOSSES = ("squared_error", "absolute_error")
BOTH, SQUARED_ALONE = ("boosting", "mlp"), ("linear", "trees")
CHOOSING = (
    "winequality",
    "friedman",
    "heavy-tails",
    "periodic",
    "uneven-noise",
    "calendar",
)
"""The tables by which a rule is chosen; it has to hold on the others."""
Floats = npt.NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--rows", type=int, default=1500, help="to train and judge on, at most")
    parser.add_argument("--params", type=int, default=3, help="to draw, of each family")
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--report", action="store_true", help="train nothing")
    asked = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    found = {name: tables.table(name, asked.data) for name in tables.names(asked.data)}
    # Groups need folds of their own (sensors).
    amounts = [n for n, t in found.items() if t.task == tables.AMOUNTS and t.group is None]
    for number in [] if asked.report else asked.splits:
        for name in amounts:
            train_on(name, number, asked)
    say("\n".join(report(asked.out, amounts, asked.splits)))


def train_on(name: str, split_number: int, asked: argparse.Namespace) -> None:
    split = next(tables.splits(tables.table(name, asked.data), [split_number]))
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(split, asked.rows, Path(folder))
        for family in (*BOTH, *SQUARED_ALONE):
            for loss in LOSSES if family in BOTH else LOSSES[:1]:
                evaluation = open_evaluation(config, config.test, ValueLoss(loss))
                one = OneFamily(
                    family, config, evaluation, own_length=True, metric="val_mae", loss=loss
                )
                for number, params in enumerate(candidates(family, asked.params)):
                    kept = asked.out / str(split_number) / f"{name}-{family}-{loss}-{number}.npz"
                    if kept.exists():
                        continue
                    value, cpu_seconds = one.train(params, folder)
                    model, data = load_table_model(Path(folder, BEST_CHECKPOINT_FILE)), evaluation
                    arrays: dict[str, Any] = {"value": value, "cpu_seconds": cpu_seconds}
                    parts = {"judged": data.dataset.judged, "test": data.part}
                    for part_name, part in parts.items():
                        mean, scale = data.dataset.target_mean, data.dataset.target_scale
                        values = model.outputs(part.rows)[:, 0] * scale + mean
                        arrays |= {part_name: values, f"{part_name}_y": part.y}
                    kept.parent.mkdir(exist_ok=True)
                    np.savez_compressed(kept, **arrays)
                    say(json.dumps([name, family, loss, number, value, round(cpu_seconds, 2)]))
                    for path in Path(folder).glob("*.pt"):
                        path.unlink()  # else the next would go on from it


def report(out: Path, names: Sequence[str], splits: Sequence[int]) -> Iterator[str]:
    """Yield a table in Markdown of the MAE with absolute errors against squared ones, in percent:
    the mean of the splits, with two standard errors over rows (a table) or tables (a group)."""
    ways = (*BOTH, "ensemble", "ensemble, mlp alone", "ensemble of both losses")
    yield "| table | " + " | ".join(f"{way}, %" for way in ways) + " | CPU of boosting | of mlp |"
    yield "|---" * (len(ways) + 3) + "|"
    changes: dict[str, list[list[float]]] = {"choosing": [], "held out": []}
    for name in names:
        every = [runs for number in splits if (runs := read(out / str(number), name))]
        if not every:
            continue
        found = np.array([changes_of(runs) for runs in every])  # (splits, ways, 2)
        means = found[:, :, 0].mean(axis=0)
        errors = np.sqrt(np.square(found[:, :, 1]).sum(axis=0)) / len(every)
        group = "choosing" if name in CHOOSING else "held out"
        changes[group].append(list(means))
        cells = [
            f"{change:+.1f} ± {error:.1f}" for change, error in zip(means, errors, strict=True)
        ]
        cpu = [f"{np.mean([cpu_ratio(runs, family) for runs in every]):.1f}" for family in BOTH]
        yield f"| {name} ({group}) | " + " | ".join([*cells, *cpu]) + " |"
    for group, rows in changes.items():
        if not rows:
            continue
        values = np.array(rows)
        one = len(values) == 1
        error = 2 * values.std(axis=0, ddof=0 if one else 1) / np.sqrt(len(values))
        cells = [f"{m:+.1f} ± {e:.1f}" for m, e in zip(values.mean(axis=0), error, strict=True)]
        yield f"| mean of {len(rows)}, {group} | " + " | ".join(cells) + " | | |"


def changes_of(runs: Runs) -> list[tuple[float, float]]:
    y = next(iter(runs.values()))["test_y"]
    pairs = [(best(runs, family, LOSSES[0]), best(runs, family, LOSSES[1])) for family in BOTH]
    squared, absolute = LOSSES
    plain = ensemble(runs, dict.fromkeys(BOTH, (squared,)))
    pairs.append((plain, ensemble(runs, dict.fromkeys(BOTH, (absolute,)))))
    pairs.append((plain, ensemble(runs, {"boosting": (squared,), "mlp": (absolute,)})))
    pairs.append((plain, ensemble(runs, dict.fromkeys(BOTH, LOSSES))))
    return [compared(np.abs(a - y), np.abs(b - y)) for a, b in pairs]


Runs = Mapping[tuple[str, str, int], Mapping[str, Any]]


def read(out: Path, name: str) -> Runs:
    found = {}
    for path in sorted(out.glob(f"{name}-*.npz")):
        *table, family, loss, number = path.stem.rsplit("-", 3)
        if table == [name]:
            with np.load(path) as arrays:
                found[family, loss, int(number)] = dict(arrays)
    return found


def best(runs: Runs, family: str, loss: str) -> Floats:
    """Return the test predictions of the family's best trial by `val_mae`."""
    own = [run for (of, by, _), run in runs.items() if (of, by) == (family, loss)]
    predicted: Floats = min(own, key=lambda run: float(run["value"]))["test"]
    return predicted


def ensemble(runs: Runs, losses: Mapping[str, Sequence[str]]) -> Floats:
    """Return the test predictions of the ensemble, selected by MAE, of the trials with these losses
    by family, and of the families that have no other."""
    own = [run for (of, by, _), run in runs.items() if by in losses.get(of, LOSSES)]
    y = own[0]["judged_y"].astype(float)
    costs = value_costs(np.stack([run["judged"] for run in own]), y, metric="mae")
    weights = np.array(select_ensemble(costs).weights)
    predicted: Floats = weights @ np.stack([run["test"] for run in own])
    return predicted


def compared(before: Floats, after: Floats) -> tuple[float, float]:
    """Return the change of the mean error in percent, and two standard errors of it (paired)."""
    scale = 100 / before.mean()
    return scale * (after - before).mean(), 2 * scale * (after - before).std() / len(before) ** 0.5


def cpu_ratio(runs: Runs, family: str) -> float:
    seconds = [
        sum(float(run["cpu_seconds"]) for (of, by, _), run in runs.items() if (of, by) == each)
        for each in ((family, LOSSES[1]), (family, LOSSES[0]))
    ]
    return seconds[0] / seconds[1]


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
