"""Data as users give it, found by `tests.objectives.user_data.sources:NAME`, and networks for
it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset


def bars(n_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(N, 1, 6, 6) images of a bright row (0) or column (1), and which it is."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n_rows,), generator=draw)
    at = torch.randint(6, (n_rows,), generator=draw)
    x = torch.rand(n_rows, 1, 6, 6, generator=draw) * 0.5
    for image, label, place in zip(x, y, at, strict=True):
        (image[0, place] if label == 0 else image[0, :, place]).add_(1)
    return x, y


def images() -> dict[str, Any]:
    return {"train": bars(200, 0), "validation": bars(80, 1), "test": bars(40, 2)}


def image_arrays() -> tuple[Any, Any]:
    """numpy's float64, and a tuple of parts."""
    return tuple(
        (x.double().numpy(), y.numpy().astype(np.uint8)) for x, y in (bars(200, 0), bars(80, 1))
    )  # type: ignore[return-value]


def frames() -> dict[str, Any]:
    """Numbers of a table: y is a mean of the columns; a third column says nothing."""

    def part(n_rows: int, seed: int) -> tuple[pd.DataFrame, pd.Series[float]]:
        x = pd.DataFrame(np.random.default_rng(seed).uniform(size=(n_rows, 3)), columns=list("abc"))
        return x, (x.a + x.b) / 2

    return {"train": part(120, 0), "validation": part(60, 1)}


def far_numbers() -> dict[str, Any]:
    """Seconds since 1970 as a column, and targets far from zero, in 64 bits."""

    def part(n_rows: int) -> tuple[Any, Any]:
        x = np.random.default_rng(0).uniform(size=(n_rows, 2))
        return x + np.array([1.7e9, 0.0]), 1e8 + x[:, 0]

    return {"train": part(120), "validation": part(60)}


def pairs_of_numbers() -> dict[str, Any]:
    """(N, 4) → (N, 2)."""

    def part(n_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.rand(n_rows, 4, generator=torch.Generator().manual_seed(seed))
        return x, torch.stack([x.sum(1), x[:, 0] - x[:, 1]], 1)

    return {"train": part(200, 0), "validation": part(50, 1)}


def sequences() -> dict[str, Any]:
    """Tokens (N, 8) of 5 kinds; after each comes the next kind."""

    def part(n_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        first = torch.randint(5, (n_rows, 1), generator=torch.Generator().manual_seed(seed))
        tokens = (first + torch.arange(9)) % 5
        return tokens[:, :-1], tokens[:, 1:]

    return {"train": part(100, 0), "validation": part(40, 1)}


class Rows(Dataset[Any]):
    """Images by number, as a user's own class gives them."""

    def __init__(self, n_rows: int, seed: int) -> None:
        self.x, self.y = bars(n_rows, seed)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.x[index], int(self.y[index])


def datasets() -> dict[str, Any]:
    """The same as `images`."""
    return {"train": Rows(200, 0), "validation": Rows(80, 1), "n_outputs": 2}


def tensor_datasets() -> dict[str, Any]:
    return {"train": TensorDataset(*bars(200, 0)), "validation": TensorDataset(*bars(80, 1))}


# --- what will not do -----------------------------------------------------------------------------


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield torch.zeros(3), 0


class Unmeasured(Dataset[Any]):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(3), 0


def a_list() -> Any:
    return [1, 2, 3, 4]


def misspelt() -> Any:
    return {"train": bars(5, 0), "valid": bars(5, 1)}


def only_train() -> Any:
    return {"train": bars(5, 0)}


def no_pair() -> Any:
    return bars(5, 0)


def other_shapes() -> Any:
    x, y = bars(5, 1)
    return {"train": bars(5, 0), "validation": (x[:, :, 1:], y)}


def other_kinds() -> Any:
    x, y = bars(5, 1)
    return {"train": bars(5, 0), "validation": (x, y.double())}


def no_rows() -> Any:
    x, y = bars(5, 1)
    return {"train": bars(5, 0), "validation": (x[:0], y[:0])}


def fewer_targets() -> Any:
    x, y = bars(5, 1)
    return {"train": bars(5, 0), "validation": (x, y[1:])}


def one_dimension() -> Any:
    return {"train": (torch.rand(5), torch.rand(5)), "validation": (torch.rand(5), torch.rand(5))}


def texts() -> Any:
    frame = pd.DataFrame({"a": ["red", "green"], "b": [1, 2]})
    return {"train": (frame, [0, 1]), "validation": (frame, [0, 1])}


def negative() -> Any:
    x, y = bars(5, 1)
    return {"train": (x, y - 1), "validation": (x, y)}


def too_many() -> Any:
    return images() | {"n_outputs": 1}


def endless() -> Any:
    return {"train": Endless(), "validation": bars(5, 0)}


def unmeasured() -> Any:
    return {"train": Unmeasured(), "validation": Unmeasured()}


def uncounted() -> Any:
    return {"train": Rows(5, 0), "validation": Rows(5, 1)}


def needs_arguments(path: str) -> Any:
    return path


def unseeded() -> Any:
    """Other rows at each call."""
    both = torch.rand(2, 30, 4)
    return {"train": (both[0], both[0].sum(1)), "validation": (both[1], both[1].sum(1))}


not_a_function = 3

# --- networks -------------------------------------------------------------------------------------


def convolutions(n_inputs: tuple[int, ...], n_outputs: int, channels: int = 4) -> nn.Module:
    n_channels, _, _ = n_inputs
    return nn.Sequential(
        nn.Conv2d(n_channels, channels, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, n_outputs),
    )


def one_too_many(n_inputs: tuple[int, ...], n_outputs: int) -> nn.Module:
    return convolutions(n_inputs, n_outputs + 1)


def linear(n_inputs: int, n_outputs: int) -> nn.Module:
    return nn.Linear(n_inputs, n_outputs)


class NextToken(nn.Module):
    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(n_outputs, 8), nn.Linear(8, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(self.embed(x))
        return out.movedim(-1, 1)


class ScoresLast(NextToken):
    """(B, T, C), as transformers have it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).movedim(1, -1)


def of_any_kind(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A loss that looks at the first output alone."""
    return (out[:, 0] - y.to(out.dtype)).abs().mean()


# --- Datasets that draw, or hold what will not do -------------------------------------------------


class Noisy(Rows):
    """Each row with noise of its own: an augmentation, by all three generators that people use."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        x, y = super().__getitem__(index)
        return x + 0.1 * torch.rand(()) + 0.1 * np.random.rand() + 0.1 * random.random(), y


def noisy() -> Any:
    return {"train": Noisy(200, 0), "validation": Rows(80, 1), "n_outputs": 2}


class Alike(Noisy):
    """Rows that differ by their noise alone, so that an order changes nothing."""

    def __init__(self) -> None:
        super().__init__(200, 0)
        self.x, self.y = torch.zeros_like(self.x), torch.zeros_like(self.y)


def alike() -> Any:
    return {"train": Alike(), "validation": Rows(80, 1), "n_outputs": 2}


class Wrong(Rows):
    """Its last row is another than the rest."""

    def __init__(self, what: str) -> None:
        super().__init__(20, 0)
        self.what = what

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        if index < 19:
            return x, y
        wrong: dict[str, Any] = {
            "ragged": (x[:, 1:], y),
            "high": (x, 7),
            "raises": None,
            "text": (x, "seven"),
        }
        return wrong[self.what]


def ragged() -> Any:
    return {"train": Wrong("ragged"), "validation": Rows(5, 1), "n_outputs": 2}


def high() -> Any:
    return {"train": Wrong("high"), "validation": Rows(5, 1), "n_outputs": 2}


def raising() -> Any:
    return {"train": Wrong("raises"), "validation": Rows(5, 1), "n_outputs": 2}


def texting() -> Any:
    return {"train": Wrong("text"), "validation": Rows(5, 1), "n_outputs": 2}


def ragged_test() -> Any:
    return datasets() | {"test": Wrong("ragged")}


def high_test() -> Any:
    return datasets() | {"test": Wrong("high")}


def raising_test() -> Any:
    return datasets() | {"test": Wrong("in a way of its own")}


def no_pairs() -> Any:
    return {"train": Bare(), "validation": Rows(5, 1), "n_outputs": 2}


class Bare(Rows):
    """Rows without targets."""

    def __init__(self) -> None:
        super().__init__(5, 0)

    def __getitem__(self, index: int) -> Any:
        return self.x[index]


def dropping(n_inputs: tuple[int, ...], n_outputs: int) -> nn.Module:
    """Draws from torch's global generator in `forward`."""
    return nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(36, n_outputs))
