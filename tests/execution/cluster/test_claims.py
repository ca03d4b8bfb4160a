"""What is held of a cluster that is shared: asked for, used, and given back when it is idle."""

from __future__ import annotations

import pytest

from automl.execution.cluster.claims import (
    IDLE_SECONDS,
    UNWANTED_SECONDS,
    ClaimedResources,
    ClaimError,
    ResourceClaim,
)
from automl.trial import HOST_UUID, DeviceId, DeviceKind

GPU_A, GPU_B = DeviceId("first", "GPU-a"), DeviceId("first", "GPU-b")
ON_HOST = DeviceId("first", HOST_UUID)
GPU, CPU = DeviceKind.GPU, DeviceKind.CPU


class Ours:
    """A claim of a cluster that gives when it is told to."""

    def __init__(self, kind: DeviceKind) -> None:
        self.kind = kind
        self.given: DeviceId | None = None
        self.fails = self.taken_away = self.is_back = False

    def device(self) -> DeviceId | None:
        if self.fails:
            raise ClaimError("torch cannot be loaded")
        return self.given

    def is_lost(self) -> bool:
        return self.taken_away

    def give_back(self) -> None:
        self.is_back = True


class Shared:
    """A cluster, its clock, and the claims of a sweep on it."""

    def __init__(self) -> None:
        self.now_seconds = 1000.0
        self.asked: list[Ours] = []
        self.idle: set[DeviceId] = set()
        self.claims = ClaimedResources(self.ask, self.end_idle, lambda: self.now_seconds)

    def ask(self, kind: DeviceKind) -> ResourceClaim:
        self.asked.append(Ours(kind))
        return self.asked[-1]

    def end_idle(self, device: DeviceId) -> bool:
        return device not in self.idle

    def pass_seconds(self, seconds: float) -> None:
        """And look then."""
        self.now_seconds += seconds
        self.claims.look()

    def give(self, device: DeviceId) -> Ours:
        """One more that the sweep has asked for."""
        self.claims.want([device.kind], 1)
        self.claims.look()
        ours = self.asked[-1]
        ours.given = device
        self.claims.look()
        return ours


@pytest.fixture
def shared() -> Shared:
    return Shared()


def test_gpus_are_asked_for_one_after_another_while_the_head_waits(shared: Shared) -> None:
    assert shared.claims.held() == {}
    assert not shared.claims.use(0, [GPU_A])
    shared.pass_seconds(1)
    assert not shared.asked, "nobody has wanted one"
    for _ in range(3):
        shared.claims.want([GPU], 5)
        shared.pass_seconds(1)
    assert [ours.kind for ours in shared.asked] == [GPU]
    shared.asked[0].given = GPU_A
    shared.pass_seconds(1)
    assert shared.claims.held() == {GPU_A: 1}
    assert len(shared.asked) == 1, "the head may have started"
    shared.claims.want([GPU], 5)
    shared.pass_seconds(1)
    assert len(shared.asked) == 2, "it waits still"


def test_what_is_not_wanted_any_more_is_not_waited_for(shared: Shared) -> None:
    shared.claims.want([GPU], 1)
    shared.pass_seconds(1)
    shared.pass_seconds(UNWANTED_SECONDS)
    (wish,) = shared.asked
    assert wish.is_back


def test_many_trials_share_a_gpu_and_one_a_share_of_the_cpu(shared: Shared) -> None:
    shared.give(GPU_A)
    assert all(shared.claims.use(n, [GPU_A]) for n in range(5))
    shared.give(ON_HOST)
    shared.give(ON_HOST)
    assert shared.claims.held() == {GPU_A: 1, ON_HOST: 2}
    assert [shared.claims.use(n, [ON_HOST]) for n in (5, 6, 7)] == [True, True, False]
    shared.claims.end_use(5)
    assert shared.claims.use(7, [ON_HOST])


def test_an_idle_gpu_is_given_back_after_a_minute_and_one_that_is_used_is_not(
    shared: Shared,
) -> None:
    idle, used = shared.give(GPU_A), shared.give(GPU_B)
    assert shared.claims.use(0, [GPU_B])
    shared.pass_seconds(IDLE_SECONDS - 1)
    assert shared.claims.held() == {GPU_A: 1, GPU_B: 1}
    shared.pass_seconds(2)
    assert shared.claims.held() == {GPU_B: 1}
    assert not shared.claims.use(1, [GPU_A]), "admission may not have heard of it yet"
    assert (idle.is_back, used.is_back) == (True, False)
    shared.claims.end_use(0)
    shared.pass_seconds(IDLE_SECONDS - 1)
    assert not used.is_back, "it is counted from the last trial"
    shared.pass_seconds(2)
    assert used.is_back


def test_processes_leave_a_gpu_before_it_is_given_back(shared: Shared) -> None:
    ours = shared.give(GPU_A)
    shared.idle.add(GPU_A)
    shared.pass_seconds(IDLE_SECONDS + 1)
    assert shared.claims.held() == {}
    assert not ours.is_back, "a worker of ours is there"
    shared.idle.clear()
    shared.pass_seconds(1)
    assert ours.is_back


def test_of_several_shares_that_which_is_used_least_is_given_back(shared: Shared) -> None:
    both = [shared.give(ON_HOST), shared.give(ON_HOST)]
    for n in range(30):
        assert shared.claims.use(n, [ON_HOST])
        shared.pass_seconds(5)
        shared.claims.end_use(n)
        shared.pass_seconds(0.1)
    assert shared.claims.held() == {ON_HOST: 1}
    assert sorted(ours.is_back for ours in both) == [False, True]


def test_what_is_taken_away_or_cannot_tell_what_it_is_is_not_used(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    shared.give(GPU_A).taken_away = True
    shared.pass_seconds(1)
    assert not shared.claims.use(0, [GPU_A])
    for _ in range(20):
        shared.claims.want([GPU], 1)
        shared.pass_seconds(1)
        shared.asked[-1].fails = True
    assert all(ours.is_back for ours in shared.asked[1:])
    assert len(shared.asked) < 10, "it is no use"
    assert "torch cannot be loaded" in caplog.text


def test_all_is_given_back_at_the_end(shared: Shared) -> None:
    shared.give(GPU_A)
    shared.claims.want([CPU], 2)
    shared.claims.look()
    shared.claims.close()
    assert len(shared.asked) == 3
    assert all(ours.is_back for ours in shared.asked)
