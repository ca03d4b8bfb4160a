"""CUDA contexts: those of idle workers are room that can be had, none is forgotten, none counted
twice, nor is memory that torch does not count."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.placing import TrialPlacer
from automl.trial import UNKNOWN_REQUEST
from tests.places import device_id, placed, process_id
from tests.running.loop.plain_ports import ports_of
from tests.running.loop.simulated_machine import Plan
from tests.running.loop.simulator import World

GB, MIB = 1000**3, 1024**2
GPU = {"GPU-a": 24 * GB}


@pytest.mark.parametrize("shows_pids", [True, False])
def test_what_idle_workers_hold_is_had_when_the_head_needs_it(shows_pids: bool) -> None:
    """Nine contexts of 0.6 GB are 5 of the 24; the tenth trial wants 19."""
    small, large = Plan(2 * GB, 2 * GB), Plan(19 * GB, 19 * GB)
    limits = AdmissionLimits(9, 0, 5.0)
    world = World(
        GPU, [small] * 9 + [large], limits=limits, own_processes=True, shows_pids=shows_pids
    )
    world.run()
    assert world.n_ended_idle >= 8, "one may be used again"
    assert world.now < 20


def test_an_idle_worker_is_used_again_without_another_context() -> None:
    """22.8 GB and one context fit, with a bound for a second they would not."""
    world = World(GPU, [Plan(22 * GB, 22 * GB)] * 3, own_processes=True, shows_pids=True)
    world.run()
    assert world.n_ended_idle == 0
    assert len(world.machine.processes) == 1


def test_idle_workers_that_are_in_nobodys_way_stay_warm() -> None:
    planned = [Plan(2 * GB, 2 * GB, seconds=n) for n in (3.0, 1.0, 2.0)] * 3
    world = World(GPU, planned, limits=AdmissionLimits(3, 0, 5.0), own_processes=True)
    world.run()
    assert world.n_ended_idle == 0
    assert len(world.machine.processes) == 3


def test_a_trial_that_is_to_have_all_is_not_robbed_by_idle_workers() -> None:
    """Alone on its second try, with 23 of the 24: no room for three contexts."""
    late = Plan(3 * GB, 3 * GB, seconds=2.0)
    all_of_it = Plan(10 * GB, 23 * GB, seconds=9.0)
    world = World(GPU, [late, late, late, all_of_it], own_processes=True)
    world.run()
    assert [type(world.told[n]).__name__ for n in range(4)] == ["FinishedOutcome"] * 4


def test_memory_that_torch_does_not_count_is_counted_once() -> None:
    """JAX, say: the promise and what NVML shows of the process are one."""
    jax = Plan(12 * GB, 12 * GB, seconds=5.0, by_torch=False)
    world = World(GPU, [jax, Plan(9 * GB, 9 * GB)], own_processes=True, shows_pids=True)
    world.run()
    assert world.now < 8, "side by side"


@settings(max_examples=60, deadline=None)
@given(
    planned=st.lists(
        st.builds(
            Plan,
            request_bytes=st.none() | st.integers(0, 20).map(lambda n: n * GB),
            peak_bytes=st.integers(0, 20).map(lambda n: n * GB),
            appears_after=st.floats(0, 3),
            seconds=st.floats(0, 6),
            hosted_after=st.floats(0, 2),
            reports_after=st.floats(0, 4),
            by_torch=st.booleans(),
            ends=st.sampled_from(["finished", "finished", "dies"]),
        ),
        min_size=1,
        max_size=10,
    ),
    contexts=st.lists(st.integers(300, 1024).map(lambda n: n * MIB), min_size=1, max_size=5),
    n_gpus=st.integers(1, 3),
    told_after=st.floats(0, 2),
    shows_pids=st.booleans(),
)
@example(  # the second's idle process is ended before its reservation comes back
    planned=[Plan(13 * GB, 0, 0, 2.0), Plan(8 * GB, 0, 0, 7.7), Plan(14 * GB, 0, 0, 8.0)],
    contexts=[1024 * MIB],
    n_gpus=1,
    told_after=0.0,
    shows_pids=False,
)
def test_with_contexts_of_any_size_nothing_is_over_committed(
    planned: list[Plan], contexts: list[int], n_gpus: int, **how: Any
) -> None:
    devices = {f"GPU-{n}": 24 * GB for n in range(n_gpus)}
    sizes = itertools.cycle(contexts)
    World(devices, planned, contexts=sizes, own_processes=True, **how).run()


def test_what_a_reading_alone_tells_of_a_process_is_noted() -> None:
    """The process trained, was kept, and ended by itself: nothing changed in the ledger
    meanwhile."""
    ledger, process, gpu = Ledger(), process_id(100), device_id("GPU-a")
    device = DeviceSnapshot(gpu, "x", 24 * GB, 20 * GB)
    requests = RequestMaker(lambda params: UNKNOWN_REQUEST, None)
    placing = TrialPlacer(
        ports_of(World(GPU, [])), requests, ledger, AdmissionLimits(4, 0, 5.0), None, {}
    )
    ledger.reserve(0, placed("GPU-a", GB), process)
    ledger.context_up(0, 0.5)
    ledger.release(0, 0.6)
    held = {(gpu, process): 0}
    for seconds in (1.0, 2.0):
        placing.read(DeviceReading(seconds, (device,), held, held), seconds)
        assert ledger.snapshot().on(gpu).has_context(process)
    placing.read(DeviceReading(3.0, (device,)), 3.0)
    assert not ledger.snapshot().on(gpu).has_context(process)
