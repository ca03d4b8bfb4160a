"""Settings of the built-in training: its length, precision, learning rate, loss and checkpoints."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from automl.config.checks import checker, is_function_target
from automl.config.metrics import LOSSES, VALUE_LOSSES, ValueLoss, split_loss
from automl.config.setting import setting


class Precision(enum.Enum):
    float32 = "float32"
    float64 = "float64"
    bfloat16 = "bfloat16"


class LearningRateSchedule(enum.Enum):
    constant = "constant"
    cosine = "cosine"
    onecycle = "onecycle"


@dataclass
class TrainingConfig:
    """The built-in training: its length, precision, learning rate, loss and checkpoints."""

    epochs: int | None = setting("all", 20)
    """Passes over the training part; auto: as many as the family takes by itself, a network up to
    200 with `patience_steps=1000`, others 20. If nobody sets it, `model=auto` and `model=tabm` get
    auto (`cli/schemas.py`)."""
    precision: Precision = setting("some", Precision.float32)
    """float32, float64, or bfloat16 (float32 weights, computed in bfloat16 by autocast). A param of
    this name in the space takes precedence, as for the other settings down to `accumulate_steps`.
    """
    schedule: LearningRateSchedule = setting("some", LearningRateSchedule.constant)
    """The course of the learning rate over a trial's steps. cosine: from `lr` down to 0; onecycle:
    up to `lr` over the first 30 %, then down (Smith and Topin, 2018)."""
    ema_decay: float = setting("few", 0.0)
    """Above 0, the network that is judged and kept is not that of the last step but the exponential
    moving average of its weights over steps (0.999: of some 1,000)."""
    patience_epochs: int | None = setting("some", None)
    """A trial ends after so many epochs without a better value of `study.metric`; none: it trains
    all its epochs."""
    patience_steps: int | None = setting("nobody", None)
    """Where `patience_epochs` is none: a network's trial ends after so many steps of the optimizer
    without a better value, in whole epochs, at least four."""
    accumulate_steps: int = setting("few", 1)
    """Number of batches whose gradients are combined for one step of the optimizer."""
    loss: str = setting("some", "auto")
    """cross_entropy (for classes), squared_error (for numbers), auto: whichever suits the target;
    for numbers also absolute_error (the median), quantile:0.9 (nine of ten targets lie below the
    prediction) and poisson (counts) where a family has them; or `module:function`: (outputs,
    targets) → the mean over a batch."""
    loader_workers: int = setting("few", 0)
    """Processes that load the rows of a trial where they do not stay on its device (data=python);
    0: it loads them itself. A trial's numbers do not depend on it."""
    checkpoint_every_seconds: float = setting("few", 10.0)
    """`last.pt` is written at most this often, and always at the end and on interruption."""

    def __post_init__(self) -> None:
        check = checker("training", self)
        for name in ("epochs", "patience_epochs", "patience_steps"):
            value = getattr(self, name)
            check(name, value is None or value >= 1, "must be at least 1.")
        check("ema_decay", 0 <= self.ema_decay < 1, "must be from 0 (no average) to below 1.")
        check("accumulate_steps", self.accumulate_steps >= 1, "must be at least 1.")
        is_loss = self.loss_name in LOSSES or is_function_target(self.loss)
        rule = (
            f"must be {', '.join(LOSSES)}, quantile:SHARE with a share between 0 and 1, or "
            "module:function or file.py:function."
        )
        check("loss", is_loss and 0 < self.quantile < 1, rule)
        check("loader_workers", self.loader_workers >= 0, "must be at least 0.")
        is_time = 0 <= self.checkpoint_every_seconds < math.inf
        check("checkpoint_every_seconds", is_time, "must be 0 (every epoch) or more.")

    @property
    def n_epochs(self) -> int:
        """Return the number of epochs, once the family has decided it (`Family.with_length`)."""
        assert self.epochs is not None, "a family has said how long it trains"
        return self.epochs

    @property
    def loss_name(self) -> str:
        """Return the name of a built-in loss, without the share of `quantile:0.9`."""
        return split_loss(self.loss)[0]

    @property
    def quantile(self) -> float:
        """Return the share of targets that should lie below the prediction."""
        return split_loss(self.loss)[1]

    @property
    def loss_target(self) -> str | None:
        """Return the name of a user's loss, or None for a built-in loss."""
        return None if self.loss_name in LOSSES else self.loss

    @property
    def value_loss(self) -> ValueLoss:
        """Return the loss by which predicted numbers are judged.

        With a user's loss, predictions are judged by squared errors.
        """
        name = self.loss_name
        return ValueLoss(name, self.quantile) if name in VALUE_LOSSES else ValueLoss()
