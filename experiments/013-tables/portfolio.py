"""Which params of a family to try first: those that together do best on tables of many kinds.

Trains params drawn from `conf/space/auto.yaml`, and those that stand in the portfolios now, on each
table; a line of JSON each, so that what was interrupted goes on. Then it chooses greedily.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tables
import yaml
from families import OneFamily, scored
from omegaconf import OmegaConf

from automl.config import DataConfig, DataKind, Task
from automl.data.dataset import Dataset
from automl.data.scoring.evaluation import EvaluationRows, open_evaluation
from automl.models.families.auto.family import BY_ROWS, batch_sizes, own_params
from automl.models.family import load_families
from automl.models.predictor import load_table_model
from automl.record.study_files import BEST_CHECKPOINT_FILE
from automl.trial import Params, ParamValue

ROOT = Path(__file__).resolve().parents[2]
SPACE = ROOT / "conf" / "space" / "auto.yaml"
WORST = 2.0
"""Of a normalised loss: one table may not decide all."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tried:
    """One line."""

    family: str
    table: str
    params: Params
    value: float
    """On the validation part, by which a study chooses."""
    loss: float
    """On the test part."""
    cpu_seconds: float


def main() -> None:
    asked = arguments()
    import torch

    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.tables or tables.names(asked.data):
        train_on(name, asked)
    if asked.outputs:  # params that follow the table, as budgets.py wants them, have no mean
        return
    found = read(asked.out)
    for family in asked.families:
        losses = Losses.of([tried for tried in found if tried.family == family])
        hand = [key(params) for params in load_families()[family]().portfolio()]
        say("\n".join(report(family, losses, hand, asked.size)))
        if asked.write:
            write(family, losses, asked.size)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--families", nargs="+", default=["linear", "boosting", "trees", "mlp"])
    parser.add_argument("--outputs", action="store_true", help="keep them for budgets.py")
    parser.add_argument("--judged", type=float, default=0.2, help="share of the rows that judges")
    parser.add_argument("--tables", nargs="+", help="names; default: all")
    parser.add_argument("--rows", type=int, default=10**9, help="to train and judge on, at most")
    parser.add_argument("--params", type=int, default=24, help="to draw, of each family")
    parser.add_argument("--size", type=int, default=3, help="of a portfolio, at most")
    parser.add_argument(
        "--write", action="store_true", help="automl/models/families/*/portfolio.yaml"
    )
    return parser.parse_args()


def train_on(name: str, asked: argparse.Namespace) -> None:
    """All params of all families that have no line yet."""
    done = {(tried.family, key(tried.params)) for tried in read(asked.out) if tried.table == name}
    table = tables.table(name, asked.data)
    split = next(tables.splits(table, [0]))
    with tempfile.TemporaryDirectory() as folder:
        config = config_of(split, asked.rows, Path(folder), asked.judged)
        evaluation = open_evaluation(config, config.test)
        for family in asked.families:
            points = candidates(family, asked.params, evaluation.dataset if asked.outputs else None)
            for number, params in enumerate(points):
                if (family, key(params)) in done:
                    continue
                tried = train(family, params, name, config, evaluation, folder)
                if asked.outputs:
                    kept = asked.out / "outputs" / name / f"{family}-{number}.npz"
                    keep_outputs(kept, tried, Path(folder, BEST_CHECKPOINT_FILE), evaluation)
                for path in Path(folder).glob("*.pt"):
                    path.unlink()  # else the next would go on from it
                with (asked.out / "tried.jsonl").open("a") as stream:
                    stream.write(json.dumps(asdict(tried)) + "\n")


def train(
    family: str,
    params: Params,
    table: str,
    config: DataConfig,
    evaluation: EvaluationRows,
    folder: str,
) -> Tried:
    one = OneFamily(family, config, evaluation, own_length=True)
    value, cpu_seconds = one.train(params, folder)
    loss, _, _ = scored(Path(folder, BEST_CHECKPOINT_FILE), evaluation)
    say(f"{table} {family} {loss:.4f} {cpu_seconds:.1f} s {params}")
    return Tried(family, table, params, value, loss, round(cpu_seconds, 2))


def keep_outputs(path: Path, tried: Tried, best: Path, evaluation: EvaluationRows) -> None:
    """Write what a model says of the rows that judge and that test, and their targets."""
    model, data = load_table_model(best), evaluation.dataset
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {"unit": np.array([data.target_mean, data.target_scale])}
    for name, part in {"judged": data.judged, "test": evaluation.part}.items():
        arrays |= {name: model.outputs(part.rows), f"{name}_y": part.y}
    np.savez_compressed(path, value=tried.value, cpu_seconds=tried.cpu_seconds, **arrays)


def config_of(
    split: tables.Split, n_rows: int, folder: Path, judged: float | None = None
) -> DataConfig:
    """The table, at most so many rows of it (the last by time, else drawn ones)."""
    train = split.train.tail(n_rows)
    train.to_csv(folder / "train.csv", index=False)
    split.test.to_csv(folder / "test.csv", index=False)
    return DataConfig(
        kind=DataKind.csv,
        path=str(folder / "train.csv"),
        target=tables.TARGET,
        task=Task(split.task),
        rules=1,
        validation_fraction=judged,
        test=str(folder / "test.csv"),
    )


def candidates(family: str, n_drawn: int, dataset: Dataset | None = None) -> Iterator[Params]:
    """Those chosen by hand, then drawn ones; the same whenever asked."""
    yield from load_families()[family]().portfolio(dataset)
    random = np.random.default_rng(0)
    space = own_params(family, space_of_all())
    n_rows = None if dataset is None else len(dataset.train)
    for _ in range(n_drawn):
        found = {name: drawn(entry, random, n_rows) for name, entry in space.items()}
        yield {name: found[name] for name, entry in space.items() if applies(family, entry, found)}


def applies(family: str, entry: Any, found: Params) -> bool:
    """Whether the condition of a param holds."""
    when = own_params(family, entry.get("when", {})) if isinstance(entry, Mapping) else {}
    return all(found[name] == value for name, value in when.items())


def space_of_all() -> Any:
    """By Hydra's own reader: to YAML itself 1e-3 is a text."""
    return OmegaConf.to_container(OmegaConf.load(SPACE))


def drawn(entry: Any, random: np.random.Generator, n_rows: int | None = None) -> ParamValue:
    """A value of a param, to two digits."""
    if entry == BY_ROWS:
        entry = {"choices": batch_sizes(n_rows)}
    if not isinstance(entry, Mapping):
        value: ParamValue = entry
        return value
    if "choices" in entry:
        choice: ParamValue = entry["choices"][int(random.integers(len(entry["choices"])))]
        return choice
    low, high = entry["low"], entry["high"]
    share = random.random()
    if entry.get("log"):
        amount = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        amount = low + share * (high - low + isinstance(low, int))
    return min(int(amount), high) if isinstance(low, int) else float(f"{amount:.2g}")


def key(params: Params) -> str:
    return json.dumps(dict(params), sort_keys=True)


def read(folder: Path) -> list[Tried]:
    path = folder / "tried.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [Tried(**json.loads(line)) for line in lines]


@dataclass(frozen=True, eq=False)
class Losses:
    """Of one family, (T, P): tables on which all params were trained, by params."""

    params: Sequence[str]
    tables: Sequence[str]
    values: Floats
    losses: Floats
    """Normalised: 0 the best on this table, 1 the middling."""

    @classmethod
    def of(cls, found: Sequence[Tried]) -> Losses:
        by_place = {(tried.table, key(tried.params)): tried for tried in found}
        params = list(dict.fromkeys(place[1] for place in by_place))
        names = dict.fromkeys(place[0] for place in by_place)
        whole = [name for name in names if all((name, one) in by_place for one in params)]
        of = [[by_place[name, one] for one in params] for name in whole]
        values = np.array([[tried.value for tried in row] for row in of])
        losses = np.array([[tried.loss for tried in row] for row in of])
        best = losses.min(axis=1, keepdims=True)
        scale = np.maximum(np.median(losses, axis=1, keepdims=True) - best, 1e-12)
        return cls(params, whole, values, ((losses - best) / scale).clip(0, WORST))

    def got(self, table: int, chosen: Sequence[int]) -> float:
        """What a study of the table comes to that tries these and takes the best by its rows."""
        taken = min(chosen, key=lambda place: self.values[table, place])
        return float(self.losses[table, taken])


def greedy(losses: Floats, size: int) -> list[int]:
    """The place of the params that lower the mean over the tables of the least loss most, each."""
    chosen: list[int] = []
    so_far = np.full(len(losses), WORST)
    for _ in range(min(size, losses.shape[1])):
        means = np.minimum(losses, so_far[:, None]).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(means.argmin()))
        so_far = np.minimum(so_far, losses[:, chosen[-1]])
    return chosen


def report(family: str, losses: Losses, hand: Sequence[str], size: int) -> Iterator[str]:
    """By size: what is chosen without a table is worth on it, in the mean, beside what stands in
    the portfolio now."""
    every = range(len(losses.tables))
    now = [losses.params.index(one) for one in hand]
    yield f"{family}: {len(every)} tables, {len(losses.params)} params"
    for n in range(1, size + 1):
        found = [losses.got(t, greedy(np.delete(losses.losses, t, axis=0), n)) for t in every]
        before = [losses.got(t, now[:n]) for t in every]
        better = sum(a < b for a, b in zip(found, before, strict=True))
        worse = sum(a > b for a, b in zip(found, before, strict=True))
        yield (
            f"  first {n}: {np.mean(found):.3f}, by hand {np.mean(before):.3f} "
            f"(better on {better} tables, worse on {worse})"
        )
    yield from (f"  {losses.params[place]}" for place in greedy(losses.losses, size))


def write(family: str, losses: Losses, size: int) -> None:
    path = load_families()[family]().portfolio_path
    head = f"# What is tried first: found on {len(losses.tables)} tables (experiments/013-tables)."
    points = [losses.params[place] for place in greedy(losses.losses, size)]
    lines = [f"- {line(json.loads(point))}" for point in points]
    path.write_text("\n".join([head, *lines]) + "\n")


def line(params: Mapping[str, ParamValue]) -> str:
    """A mapping in one line of YAML."""
    shown = yaml.safe_dump(dict(params), default_flow_style=True, sort_keys=False, width=1000)
    return shown.strip()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
