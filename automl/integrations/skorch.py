"""Reports skorch's metrics to a trial.

Pass `callbacks=[automl.integrations.skorch.Report(trial, "valid_loss")]` to the net. One file of a
family, because it alone imports skorch.
"""

from __future__ import annotations

from typing import Any

from skorch.callbacks import Callback

from automl.integrations.reports import LibraryReports


class SkorchReport(Callback):
    """Reports metrics of the net's history after each epoch; `best.pt` holds the module's weights.

    A trial that was interrupted begins anew, because the state of skorch's callbacks (learning
    rates, say) cannot be restored.
    """

    def __init__(self, trial: object, *metrics: str) -> None:
        self._reports = LibraryReports(trial, metrics)

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Report the metrics of an epoch. Raises what `TrialContext.report` raises."""
        self._reports.tell(
            len(net.history) - 1,
            net.history[-1],
            best=lambda: {"module": net.module_.state_dict()},
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return nothing: skorch would look for its own callbacks' arguments, to clone them."""
        return {}


Report = SkorchReport
"""The public name of `SkorchReport`."""
