"""skorch: `callbacks=[automl.integrations.skorch.SkorchReport(trial, "valid_loss")]`."""

from __future__ import annotations

from typing import Any

from skorch.callbacks import Callback

from automl.integrations.reports import LibraryReports


class SkorchReport(Callback):
    """Reports metrics of the net's history after each epoch; `best.pt` holds the module's weights.

    A trial that was interrupted begins anew: what skorch's callbacks know (of learning rates, say)
    cannot be put back into them.
    """

    def __init__(self, trial: object, *metrics: str) -> None:
        self._reports = LibraryReports(trial, metrics)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Raises what `TrialContext.report` raises."""
        self._reports.tell(
            len(net.history) - 1,
            net.history[-1],
            best=lambda: {"module": net.module_.state_dict()},
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """None: skorch would look for the arguments of its own callbacks, to clone them."""
        return {}


Report = SkorchReport
"""The name by which users know the class."""
