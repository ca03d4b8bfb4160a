"""Times checkpoint files in three formats: torch's zip, and arrays in a zip, compressed or not."""

from __future__ import annotations

import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_classification

from automl.config import DataConfig, DataKind, TrainingConfig
from automl.data.load import load_dataset
from automl.in_trial.checkpoints import plain_checkpoint, torch_checkpoint
from automl.models.families.table_estimator import TrialFit
from automl.models.families.trees.family import TreesFamily
from automl.models.families.trees.heavy import SIDE

N_ROWS, N_TREES, N_TIMES = 20_000, 100, 7


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder, "best.pt")
        for name, state in (("network", network()), ("forest", forest(Path(folder)))):
            tensors, arrays = torch_checkpoint.snapshot(state), as_arrays(state)
            say(f"{name}: torch's zip", torch_checkpoint, tensors, path)
            say(f"{name}: arrays, compressed", plain_checkpoint, arrays, path)
            with uncompressed():
                say(f"{name}: arrays as they are", plain_checkpoint, arrays, path)


@contextmanager
def uncompressed() -> Iterator[None]:
    write = plain_checkpoint._write_zip
    replaced: Any = lambda file, text, arrays, _: write(file, text, arrays, zipfile.ZIP_STORED)  # noqa: E731
    plain_checkpoint._write_zip = replaced
    yield
    plain_checkpoint._write_zip = write


def network() -> dict[str, Any]:
    """A network of some 670,000 weights."""
    layers = [torch.nn.Linear(a, b) for a, b in ((100, 768), (768, 768), (768, 2))]
    return {"weights": torch.nn.Sequential(*layers).state_dict()}


def forest(folder: Path) -> dict[str, Any]:
    """The model of a trial of `model=trees`."""
    x, y = make_classification(N_ROWS, 14, n_informative=8, random_state=0, flip_y=0.1)
    table = np.column_stack([x, y])
    np.savetxt(
        folder / "t.csv", table, delimiter=",", header=",".join("abcdefghijklmny"), comments=""
    )
    config = DataConfig(kind=DataKind.csv, path=str(folder / "t.csv"), target="y")
    data, family = load_dataset(config), TreesFamily(trees_per_epoch=N_TREES)
    n_rounds = family.n_reports(TrainingConfig(epochs=1))
    models: list[dict[str, Any]] = []
    fit = TrialFit(family, data, family.params({}), seed=0, n_rounds=n_rounds, n_threads=1)
    SIDE.fit(fit, lambda fitted: models.append(dict(fitted.get_model())))
    return models[-1]


def as_arrays(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: as_arrays(value) for name, value in state.items()}
    return state.numpy() if isinstance(state, torch.Tensor) else state


def say(name: str, files: Any, content: Any, path: Path) -> None:
    write = least_ms(lambda: files.save(path.parent, {path.name: content}))
    read = least_ms(lambda: files.load(path))
    size = path.stat().st_size / 1e6
    sys.stdout.write(f"{name:28}  write {write:6.1f} ms  read {read:6.1f} ms  {size:5.2f} MB\n")


def least_ms(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(N_TIMES):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return 1000 * min(seconds)


if __name__ == "__main__":
    main()
