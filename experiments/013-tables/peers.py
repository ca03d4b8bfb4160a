"""Runs each tool on each table in a process of its own, and writes down what came of it.

A line of JSON per (table, split, tool, minutes) as it is known: what was interrupted goes on where
it was, and what failed is tried again. `peers_report.py` makes tables and a plot of the lines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import tables

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "001-throughput"))
from whole_process import ProcessFailedError, fresh_folder, run  # noqa: E402

ROOT = HERE.parents[1]
ENVIRONMENTS = {
    "automl": Path(sys.executable),
    "autogluon-medium": ROOT / ".venv-peers-autogluon" / "bin" / "python",
    "autogluon-best": ROOT / ".venv-peers-autogluon" / "bin" / "python",
}
SHARED = ROOT / ".venv-peers-tables" / "bin" / "python"
TIMED = (
    *("automl", "autogluon-medium", "autogluon-best"),
    *("flaml", "lightgbm-optuna", "catboost-optuna"),
)
"""They take as long as they are given; the others have one result, whatever the minutes."""
DEFAULTS = (
    *("lightgbm", "catboost", "hist-boosting", "gradient-boosting", "extra-trees"),
    *("extra-trees-all", "random-forest", "linear", "neighbours", "mlp", "realmlp"),
)
LEAST_PROBABILITY = 1e-7
"""So that one row that a tool was sure of, and wrong, does not decide all."""

Losses = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Key:
    table: str
    split: int
    tool: str
    minutes: float
    """0: it was not told how long."""

    @property
    def file(self) -> str:
        """Of the losses by row."""
        return f"{self.table}-{self.split}-{self.tool}-{self.minutes:g}.npz"


@dataclass(frozen=True)
class Result:
    """One line."""

    key: Key
    n_train: int
    loss: float | None = None
    """Log-loss, or RMSE; None: it failed."""
    error: float | None = None
    """Share of wrong classes; None of amounts."""
    auc: float | None = None
    """Area under the ROC curve, the mean of the classes; None of amounts."""
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    others_cores: float | None = None
    failed: str | None = None


def main() -> None:
    asked = arguments()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: asked.cores])  # and all it starts
    asked.out.mkdir(parents=True, exist_ok=True)
    done = {result.key for result in read(asked.out) if result.failed is None}
    wanted = [key for key in keys(asked) if key not in done]
    say(f"{len(wanted)} to run, at most {sum(limit(key, asked.minutes) for key in wanted):.0f} s")
    for number, key in enumerate(wanted, start=1):
        result = measured(key, asked)
        with (asked.out / "results.jsonl").open("a") as stream:
            stream.write(json.dumps(asdict(result)) + "\n")
        shown = result.failed or f"{result.loss:.4f} in {result.wall_seconds:.0f} s"
        say(f"{number}/{len(wanted)} {key.table} {key.split} {key.tool} {key.minutes:g}: {shown}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--minutes", type=float, nargs="+", default=[1])
    parser.add_argument("--splits", type=int, nargs="+", default=[0], help="0, 1, 2")
    parser.add_argument("--tables", nargs="+", help="names; default: all")
    parser.add_argument("--tools", nargs="+", default=[*TIMED, *DEFAULTS])
    parser.add_argument(
        "--structure", action="store_true", help="tell ours and AutoGluon of groups and of time"
    )
    parser.add_argument("--cores", type=int, default=2, help="the first of these, for each tool")
    parser.add_argument("--ours", nargs="+", default=[], help="settings of automl.fit")
    return parser.parse_args()


def keys(asked: argparse.Namespace) -> Iterator[Key]:
    """Table by table, so that what is there at any time can be compared."""
    names = asked.tables or tables.names(asked.data)
    for split, name in product(asked.splits, names):
        for tool in asked.tools:
            for minutes in asked.minutes if tool in TIMED else [0]:
                yield Key(name, split, tool, minutes)


def limit(key: Key, minutes: Sequence[float]) -> float:
    """After so many seconds it is killed: half as long again, and two minutes, for its end."""
    return 60 * (key.minutes or max(minutes)) * 1.5 + 120


def measured(key: Key, asked: argparse.Namespace) -> Result:
    """Whatever the tool does; where it fails the end of what it said."""
    table = tables.table(key.table, asked.data)
    split = next(tables.splits(table, [key.split]))
    failed = Result(key, len(split.train))
    with fresh_folder(None) as folder:
        split.train.to_csv(folder / "train.csv", index=False)
        split.test.drop(columns=tables.TARGET).to_csv(folder / "test.csv", index=False)
        seconds = limit(key, asked.minutes)
        until = time.time() + 60 * (key.minutes or max(asked.minutes))
        try:
            words = command(key, split, folder, until, asked.ours)
            timing = run([*words, *structure(table, asked)], folder, seconds, OURS)
        except ProcessFailedError as error:
            end_all()
            return replace(failed, failed=str(error)[-2000:])
        said = np.load(folder / "said.npy")
        classes = json.loads((folder / "classes.json").read_text())
        path = folder / "labels.json"
        labels = json.loads(path.read_text()) if path.exists() else None
    return replace(
        scored(key, split, asked.out, said, classes, labels),
        wall_seconds=round(timing.wall_seconds, 2),
        cpu_seconds=round(timing.cpu_seconds, 2),
        others_cores=round(timing.others_cores, 2),
    )


OURS = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
"""For our own tree, where it is not the one that is installed."""


def structure(table: tables.Table, asked: argparse.Namespace) -> list[str]:
    """Return the words that tell a tool which column has the groups, or the time."""
    named = {"group": table.group, "time": table.time} if asked.structure else {}
    return [f"--{key}={name}" for key, name in named.items() if name is not None]


def command(
    key: Key, split: tables.Split, folder: Path, until: float, settings: Sequence[str]
) -> list[str]:
    """Of the process that learns and predicts."""
    python = ENVIRONMENTS.get(key.tool, SHARED)
    words = [str(python), str(HERE / "contender.py"), key.tool, str(folder), f"--until={until}"]
    words += ["--classes"] if split.task == tables.CLASSES else []
    return words + (list(settings) if key.tool == "automl" else [])


def scored(
    key: Key,
    split: tables.Split,
    out: Path,
    said: Losses,
    classes: Sequence[str],
    labels: Sequence[str] | None = None,
) -> Result:
    """Return what a tool's words about the test rows are worth, and write the loss of each row.

    `labels` are the classes that it names; None: the likeliest of each row.
    """
    losses, wrong = losses_of(split, said, classes)
    rows = split.test.index.to_numpy()
    if split.task == tables.AMOUNTS:
        np.savez(out / key.file, rows=rows, losses=losses, wrong=wrong)
        return Result(key, len(split.train), float(losses.mean() ** 0.5))
    target = split.test[tables.TARGET].to_numpy()
    if labels is not None:
        wrong = (np.array(labels) != target).astype(float)
    right = np.array([list(classes).index(name) for name in target])
    np.savez(out / key.file, rows=rows, losses=losses, wrong=wrong, said=said, right=right)
    loss, error = float(losses.mean()), float(wrong.mean())
    return Result(key, len(split.train), loss, error, area_under_curve(said, right))


def area_under_curve(said: Losses, right: npt.NDArray[np.int64]) -> float:
    """Return the AUC of probabilities (N, C) for the classes `right` (N,); of more than two classes
    the mean, each against the others."""
    from sklearn.metrics import roc_auc_score

    numbers = range(1, 2) if said.shape[1] == 2 else sorted(set(right))
    return float(np.mean([roc_auc_score(right == c, said[:, c]) for c in numbers]))


def losses_of(split: tables.Split, said: Losses, classes: Sequence[str]) -> tuple[Losses, Losses]:
    """The loss of each test row (log-loss, or squared error), and whether its class is wrong.

    `said` are values, or (N, C) probabilities of the classes; a class that is not among them has
    none.
    """
    target = split.test[tables.TARGET]
    if split.task == tables.AMOUNTS:
        return np.square(said - target.to_numpy(dtype=float)), np.empty(0)
    right = target.map({name: number for number, name in enumerate(classes)})
    known = said[np.arange(len(said)), right.fillna(0).astype(int)]
    losses = -np.log(np.where(right.notna(), known, 0).clip(LEAST_PROBABILITY, 1))
    return losses, np.asarray(said.argmax(axis=1) != right, dtype=float)


def end_all() -> None:
    """What a tool left running when it was killed."""
    for process in psutil.Process().children(recursive=True):
        process.kill()
    psutil.wait_procs(psutil.Process().children(), timeout=30)


def read(folder: Path) -> list[Result]:
    """The latest of each key."""
    path = folder / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = (_result(json.loads(line)) for line in lines)
    return list({result.key: result for result in found}.values())


def _result(line: dict[str, Any]) -> Result:
    return Result(**{**line, "key": Key(**line["key"])})


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
