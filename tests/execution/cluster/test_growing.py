"""When a cluster's autoscaler is asked, for how much, and that it is withdrawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from automl.execution.cluster.autoscaler import (
    PATIENCE_SECONDS,
    Bundle,
    GrowingCluster,
    wanted_bundles,
)
from automl.running.run_sweep import sweep_log
from automl.terminal.live_display import PlainDisplay
from automl.trial import DeviceKind

CPU, GPU = DeviceKind.CPU, DeviceKind.GPU


class Fleet:
    """A cluster of two CPUs, and a clock."""

    def __init__(self, *, has_autoscaler: bool | None = True) -> None:
        self.now_seconds = 1000.0
        self.has_autoscaler = has_autoscaler
        self.n_cpus = 2.0
        self.asked: list[Sequence[Bundle]] = []
        self.growing = GrowingCluster(self, 1, lambda: self.now_seconds)

    def is_there(self) -> bool | None:
        return self.has_autoscaler

    def totals(self) -> Bundle:
        return {"CPU": self.n_cpus, "memory": 1e9}

    def ask(self, bundles: Sequence[Bundle]) -> None:
        self.asked.append(bundles)

    def wait(self, seconds: float, n: int = 9) -> None:
        """The head waits for so long, with as many that could start."""
        for _ in range(round(seconds)):
            self.growing.want([CPU], n)
            self.growing.look()
            self.now_seconds += 1


def test_the_wish_is_what_there_is_and_at_most_as_much_again() -> None:
    assert (
        wanted_bundles({"CPU": 4, "GPU": 2}, {GPU}, 9, 2) == [{"CPU": 2.0}] * 2 + [{"GPU": 1.0}] * 4
    )
    assert (
        wanted_bundles({"CPU": 4, "GPU": 2}, {GPU}, 1, 2) == [{"CPU": 2.0}] * 2 + [{"GPU": 1.0}] * 3
    )
    assert wanted_bundles({"CPU": 4}, {CPU}, 9, 1) == [{"CPU": 1.0}] * 8
    assert wanted_bundles({}, {CPU, GPU}, 9, 1) == [{"CPU": 1.0}, {"GPU": 1.0}]


def test_it_is_asked_when_the_head_has_waited_and_withdrawn_at_the_end() -> None:
    fleet = Fleet()
    fleet.wait(PATIENCE_SECONDS)
    assert not fleet.asked, "what runs may just be ending"
    fleet.wait(1)
    assert fleet.asked == [[{"CPU": 1.0}] * 4]
    fleet.n_cpus = 4.0
    fleet.wait(PATIENCE_SECONDS)
    assert fleet.asked[-1] == [{"CPU": 1.0}] * 8, "it waits still"
    fleet.growing.close()
    assert not fleet.asked[-1]


def test_a_head_that_waits_now_and_then_wants_nothing() -> None:
    fleet = Fleet()
    for _ in range(10):
        fleet.wait(PATIENCE_SECONDS - 1)
        fleet.now_seconds += 10
    fleet.growing.close()
    assert not fleet.asked


def test_a_cluster_without_an_autoscaler_is_said_once_to_the_user(tmp_path: Path) -> None:
    fleet, screen = Fleet(has_autoscaler=None), io.StringIO()
    with sweep_log(tmp_path / "sweep.log", PlainDisplay(Console(file=screen, width=200))):
        fleet.wait(20)
        assert not screen.getvalue(), "it is not known yet"
        fleet.has_autoscaler = False
        fleet.wait(20)
    assert not fleet.asked
    assert screen.getvalue() == "this cluster has no autoscaler: it stays as large as it is\n"
