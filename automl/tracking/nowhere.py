"""No delivery: `tracking.store=none`. The event log keeps all that MLflow would be given."""

from __future__ import annotations


class NoDelivery:
    """Stands where a `Delivery` does, and has nothing to do."""

    def address(self) -> None:
        """Nobody shows the runs."""

    def wait_usable(self, timeout_seconds: float) -> None:
        """It is."""

    def lag(self) -> int:
        return 0

    def trouble(self) -> None:
        """There is none."""

    def drain(self, timeout_seconds: float) -> bool:
        return True

    def stop(self) -> None:
        """Nothing runs."""
