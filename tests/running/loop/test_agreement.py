"""Sweeps that choose at once: however they take turns, they never promise more than there is."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.refusals import AdmissionRefusal
from automl.devices.device_reading import Elsewhere
from automl.running.loop.messages import ExecutionStart
from automl.running.loop.placing import agree_on_start
from automl.trial import Placement, ResourceRequest
from tests.places import device_id, placed

TOTAL = 10
A, B = device_id("GPU-a"), device_id("GPU-b")
DEVICES = (A, B)


class Machine:
    """Sweeps of which each wants one place. While one looks, others may take a step."""

    def __init__(self, wanted: list[int], turns: list[int]) -> None:
        self.wanted, self.turns = wanted, turns
        self.shown: dict[int, Placement] = {}
        self.kept: dict[int, Placement] = {}
        self.busy: set[int] = set()

    def step(self) -> None:
        """Another sweep, or none, does all it does in between."""
        sweep = self.turns.pop() if self.turns else len(self.wanted)
        if sweep < len(self.wanted) and sweep not in self.busy | self.kept.keys():
            self.choose(sweep)

    def choose(self, sweep: int) -> None:
        self.busy.add(sweep)
        first = self.decide(sweep, self.elsewhere(sweep))
        self.step()
        if isinstance(first, ExecutionStart):
            found = agree_on_start(
                first,
                lambda coming: self.show(sweep, coming),
                lambda: self.look_and_decide(sweep),
            )
            if isinstance(found, ExecutionStart):
                self.kept[sweep] = found.placement
        self.busy.discard(sweep)

    def show(self, sweep: int, coming: ExecutionStart | None) -> None:
        self.shown.pop(sweep, None)
        if coming is not None:
            self.shown[sweep] = coming.placement
        self.step()

    def look_and_decide(self, sweep: int) -> ExecutionStart | AdmissionRefusal:
        seen = self.elsewhere(sweep)
        self.step()
        return self.decide(sweep, seen)

    def elsewhere(self, sweep: int) -> Elsewhere:
        return {
            (placement.devices[0], str(other)): self.wanted[other]
            for other, placement in self.shown.items()
            if other != sweep
        }

    def decide(self, sweep: int, elsewhere: Elsewhere) -> ExecutionStart | AdmissionRefusal:
        for device in DEVICES:
            taken = sum(size for (where, _), size in elsewhere.items() if where == device)
            if taken + self.wanted[sweep] <= TOTAL:
                size = self.wanted[sweep]
                return ExecutionStart([], ResourceRequest(size), placed(device.uuid, size))
        return AdmissionRefusal("full")


@settings(max_examples=300)
@given(
    wanted=st.lists(st.integers(1, TOTAL), min_size=2, max_size=5),
    turns=st.lists(st.integers(0, 4), max_size=40),
)
def test_whoever_acts_between_showing_and_looking_nothing_is_promised_twice(
    wanted: list[int], turns: list[int], **_: Any
) -> None:
    machine = Machine(wanted, turns)
    for sweep in range(len(wanted)):
        if sweep not in machine.kept:
            machine.choose(sweep)
    for device in DEVICES:
        held = (s for s, p in machine.kept.items() if p.devices == (device,))
        assert sum(wanted[sweep] for sweep in held) <= TOTAL
    assert machine.shown == machine.kept, "what was not taken is shown no more"
    assert machine.kept
