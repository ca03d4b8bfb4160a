"""What is known, without torch, of data that a function of the user's gives (`data=python`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss

Size: TypeAlias = "int | tuple[int, ...]"
"""Of a row: a number of columns, or a shape of more dimensions."""


STAYS_SHARE = 0.5
"""Of a GPU's room for a trial, what its data may take at most: the rest is for training."""


class NetworkOutputs(enum.Enum):
    """What a network gives for a row, which its loss decides."""

    SCORES = "scores"
    """One for each class: (B, C), or (B, C, …) for several targets of a row."""
    NUMBERS = "numbers"
    """(B, 1), or the shape of a row's targets."""
    ANY = "any"
    """What the user's own loss takes."""


@dataclass(frozen=True)
class UserDataFacts:
    """Sizes and digest of both parts, found out where the function may be called. Picklable."""

    name: str
    task: Task
    outputs: NetworkOutputs
    n_train: int
    n_validation: int
    n_inputs: Size
    n_outputs: Size
    takes_integers: bool
    """Rows are whole numbers (tokens, bytes), which a network gets as they are."""
    size_bytes: int | None
    """Of both parts, in float32; None: they are not tensors, and their size is not known."""
    digest: str
    """SHA-256 over the content of tensors; of Datasets over their lengths and shapes alone."""
    notes: tuple[str, ...]
    loss: ValueLoss = SQUARED_ERROR
    """What is told of predicted numbers, as of a `Dataset`."""

    def stays(self, room_bytes: int | None) -> bool:
        """Whether both parts are kept on a device with this much room for a trial; None: in main
        memory, where they are already."""
        if self.size_bytes is None:
            return False
        return room_bytes is None or self.size_bytes <= STAYS_SHARE * room_bytes

    @property
    def metrics(self) -> tuple[str, ...]:
        """What a training on it reports."""
        miss = {
            NetworkOutputs.SCORES: ("val_error",),
            NetworkOutputs.NUMBERS: ("val_rmse",),
            NetworkOutputs.ANY: (),
        }
        return ("train_loss", "val_loss", *miss[self.outputs])
