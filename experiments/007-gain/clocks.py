"""What the process of `gain` does, by the clock on the wall or by its CPU time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from automl.measure.gain import child
from automl.measure.gain.gain_messages import GainSetup, TrainingTiming
from automl.measure.gain.watch import HostClock


def time_by_wall(setup: GainSetup) -> Iterator[TrainingTiming]:
    """As the command."""
    return child.time_ways(setup)


def time_by_cpu(setup: GainSetup) -> Iterator[TrainingTiming]:
    """This process is thrown away afterwards."""
    HostClock.mark = HostClock.finish = staticmethod(time.process_time)  # type: ignore[method-assign,assignment]
    return child.time_ways(setup)
