"""Facts about the data of `data=python`, which a function of the user's returns.

The file is apart from the code that reads the data, so that they are known without torch.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss

Size: TypeAlias = "int | tuple[int, ...]"
"""The size of a row: a number of columns, or a shape of several dimensions."""


STAYS_SHARE = 0.5
"""The largest share of a GPU's memory for a trial that its data may take: the rest is for
training."""


class NetworkOutputs(enum.Enum):
    """The kind of output that a network gives for a row; its loss decides which."""

    SCORES = "scores"
    """A score for each class: (B, C), or (B, C, …) for several targets of a row."""
    NUMBERS = "numbers"
    """Predicted numbers: (B, 1), or the shape of a row's targets."""
    ANY = "any"
    """Whatever the user's own loss takes."""


@dataclass(frozen=True)
class UserDataFacts:
    """Sizes and digest of the training and validation parts, found by calling the function.

    Instances can be pickled.
    """

    name: str
    task: Task
    outputs: NetworkOutputs
    n_train: int
    n_validation: int
    n_inputs: Size
    n_outputs: Size
    takes_integers: bool
    """Whether rows are whole numbers (tokens, bytes), which a network gets unchanged."""
    size_bytes: int | None
    """Bytes of both parts in float32; None: they are not tensors, and their size is not known."""
    digest: str
    """SHA-256 over the content of tensors; for torch Datasets over lengths and shapes alone."""
    notes: tuple[str, ...]
    loss: ValueLoss = SQUARED_ERROR
    """The loss by which predicted numbers are judged, like `Dataset.loss`."""

    def stays(self, room_bytes: int | None) -> bool:
        """Return whether both parts stay on a device with this much memory for a trial.

        None stands for main memory, where the parts are already.
        """
        if self.size_bytes is None:
            return False
        return room_bytes is None or self.size_bytes <= STAYS_SHARE * room_bytes

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics that a training on this data reports."""
        by_outputs = {
            NetworkOutputs.SCORES: ("val_error",),
            NetworkOutputs.NUMBERS: ("val_rmse",),
            NetworkOutputs.ANY: (),
        }
        return ("train_loss", "val_loss", *by_outputs[self.outputs])
