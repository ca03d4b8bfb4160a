"""How many trials share a device, found from their pace, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.admission.governor import PATIENCE_SECONDS, SharingGovernor, shared_device
from automl.devices.device_reading import DeviceSnapshot
from automl.trial import LOCAL_HOST
from tests.places import device_id

GB = 1000**3
GPU = DeviceSnapshot(device_id("GPU-a"), "NVIDIA Stub", 80 * GB, 80 * GB)
CPU = DeviceSnapshot(LOCAL_HOST, "cpu", 80 * GB, 80 * GB)

TogetherOf = Callable[[int], float]
"""Of all trials together, by how many share the device: as many times one's full speed."""


def up_to(n: int, costs: float = 0.0) -> TogetherOf:
    """So many run at full speed; each more costs all."""
    return lambda k: min(k, n) * max(0.1, 1 - costs * max(0, k - n))


@dataclass
class Device:
    """A device that always has as many trials as it may, read each half second."""

    together: TogetherOf
    snapshot: DeviceSnapshot = GPU
    n_most: int = 16
    seconds_of_trial: float = 100.0
    """Of work, at full speed: from half of that to twice."""
    starts_in: float = 2.0
    steps_per_second: float = 20.0
    noise: float = 0.0
    governor: SharingGovernor = field(default_factory=SharingGovernor)
    now: float = 0.0
    counts: list[int] = field(default_factory=list)
    """How many ran, by half seconds."""

    def __post_init__(self) -> None:
        self._random = Random(1)
        self._begun: dict[int, float] = {}
        self._left: dict[int, float] = {}
        self._done: dict[int, float] = {}
        self._next = 0

    def run(self, seconds: float) -> Device:
        end = self.now + seconds
        while self.now < end:
            self._advance(0.5)
            limit = self.governor.limit(self.snapshot.address)
            n_most = self.n_most if limit is None else limit.n_most
            assert 1 <= n_most <= self.n_most
            while len(self._done) < n_most:
                self._done[self._next], self._begun[self._next] = 0.0, self.now
                self._left[self._next] = self.seconds_of_trial * 2 ** self._random.uniform(-1, 1)
                self._next += 1
            self.counts.append(len(self._done))
        return self

    @property
    def at_last(self) -> float:
        """How many ran in the last quarter."""
        last = self.counts[-len(self.counts) // 4 :]
        return sum(last) / len(last)

    @property
    def why(self) -> str:
        limit = self.governor.limit(self.snapshot.address)
        assert limit is not None
        return limit.why

    def _advance(self, seconds: float) -> None:
        pace = self.together(len(self._done)) / max(1, len(self._done))
        for trial in [*self._done]:
            if self.now - self._begun[trial] >= self.starts_in:
                noise = math.exp(self.noise * self._random.gauss(0, 1))
                self._done[trial] += seconds * pace * noise
                if self._done[trial] >= self._left[trial]:
                    del self._done[trial], self._begun[trial]
        self.now += seconds
        n_steps = {t: int(1000 + self.steps_per_second * done) for t, done in self._done.items()}
        self.governor.observe(shared_device(self.snapshot, self.n_most, {**n_steps}), self.now)


@pytest.mark.parametrize("costs", [0.03, 0.1])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_as_many_share_a_gpu_as_are_fastest_together(n: int, costs: float) -> None:
    assert Device(up_to(n, costs)).run(3000).at_last == pytest.approx(n, abs=0.3)


@pytest.mark.parametrize("n", [2, 5])
def test_where_sharing_costs_nothing_more_do_not_pay(n: int) -> None:
    assert Device(up_to(n)).run(3000).at_last == pytest.approx(n, abs=0.3)


def test_it_begins_with_two() -> None:
    device = Device(up_to(16)).run(6)
    assert max(device.counts) == 2
    assert device.why == "their pace is measured before another joins"


def test_with_one_where_contexts_are_dear() -> None:
    small = DeviceSnapshot(device_id("GPU-s"), "NVIDIA Stub", 8 * GB, 8 * GB)
    assert max(Device(up_to(16), small).run(6).counts) == 1


def test_where_each_more_pays_there_are_as_many_as_may() -> None:
    assert Device(up_to(16), seconds_of_trial=1000).run(600).at_last == 16


def test_why_it_holds_one_back() -> None:
    assert Device(up_to(2, 0.04)).run(1000).why == "a third made them 4 % slower together"
    assert Device(up_to(2)).run(1000).why == "a third made them 0 % slower together"
    slight = Device(lambda k: min(k, 2) * (1.02 if k > 2 else 1.0)).run(1000)
    assert slight.why == "a third made them only 2 % faster together"


def test_trials_too_short_for_a_pace_are_not_held_back() -> None:
    device = Device(up_to(16), seconds_of_trial=1.0, starts_in=0.0).run(60)
    assert device.counts[20:] == [16] * 100


def test_trials_that_tell_no_pace_are_not_held_back_for_long() -> None:
    device = Device(up_to(16), steps_per_second=0.0, seconds_of_trial=1e9)
    device.run(4 * PATIENCE_SECONDS)
    assert device.counts[-1] == 16


def test_short_trials_do_not_make_it_forget_what_it_found() -> None:
    device = Device(up_to(2, 0.1)).run(1000)
    assert device.counts[-1] == 2
    device.seconds_of_trial = 1.0
    assert max(device.run(100).counts[-190:]) == 2


def test_devices_of_one_model_learn_from_each_other() -> None:
    first = Device(up_to(2, 0.1)).run(1000)
    other = DeviceSnapshot(device_id("GPU-b"), GPU.name, GPU.total_bytes, GPU.total_bytes)
    second = Device(up_to(2, 0.1), other, governor=first.governor, now=1000.0).run(300)
    assert max(second.counts) == 2


def test_of_the_host_all_cores_are_used_at_once() -> None:
    """8 of them; fewer are tried once, and not again where these are slower."""
    device = Device(up_to(8), CPU, n_most=8).run(3000)
    assert device.counts[0] == 8
    assert min(device.counts) == 7
    assert device.at_last == 8


def test_where_fewer_are_faster_on_the_host_there_are_fewer() -> None:
    assert Device(up_to(5, 0.1), CPU, n_most=8).run(3000).at_last == pytest.approx(5, abs=0.3)


def test_a_machine_that_has_no_place_yet_is_used_wholly_when_it_has_some() -> None:
    governor = SharingGovernor()
    for n_places in (0, 1, 4):
        governor.observe(shared_device(CPU, n_places, {}), 0.0)
        assert governor.limit(LOCAL_HOST) is None, "as many as it has"


def test_a_device_that_nobody_has_seen_has_no_limit() -> None:
    assert SharingGovernor().limit(GPU.address) is None


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 10),
    costs=st.sampled_from([0.0, 0.03, 0.1]),
    n_most=st.integers(1, 16),
    seconds=st.floats(0.3, 400),
    steps_per_second=st.floats(0.05, 200),
    noise=st.floats(0, 0.15),
    on_host=st.booleans(),
)
def test_whatever_the_trials_are_like_somebody_runs_and_never_too_many(
    *,
    n: int,
    costs: float,
    n_most: int,
    seconds: float,
    steps_per_second: float,
    noise: float,
    on_host: bool,
) -> None:
    """`TimedDevice.run` checks the bounds at each reading; what is found is no worse than 0.8 of
    the
    best, where each trial is long enough to be measured."""
    device = Device(
        up_to(n, costs),
        CPU if on_host else GPU,
        n_most=n_most,
        seconds_of_trial=seconds,
        steps_per_second=steps_per_second,
        noise=noise,
    ).run(1500)
    assert min(device.counts) >= 1
    if seconds > 60 and steps_per_second > 10 and not on_host:
        best = max(map(device.together, range(1, n_most + 1)))
        last = device.counts[-500:]
        assert sum(map(device.together, last)) / len(last) >= 0.8 * best
