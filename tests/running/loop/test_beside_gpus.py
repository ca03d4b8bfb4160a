"""Each machine is shared by trials that train on it and those that train on its GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from automl.admission.limits import AdmissionLimits
from automl.devices.device_reading import HostState
from automl.trial import DeviceKind, host_device_of
from tests.running.loop.choosers import Known
from tests.running.loop.simulated_machine import Hosted, Plan
from tests.running.loop.simulator import World

GB, MB = 1000**3, 1000**2
CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
N_CORES = 4
LIMITS = AdmissionLimits(None, 0, 5.0, max_per_gpu=3, max_on_host=N_CORES)


class Shared(World):
    """Checks from its own books that both kinds together never have more than a machine has."""

    def __post_init__(self) -> None:
        self.nodes: dict[int, str] = {}
        """Of each execution."""
        super().__post_init__()

    def host_states(self) -> Mapping[str, HostState]:
        """Their cores are all busy: who needs one has to wait for one to come free."""
        hosts = [device for device in self.totals if device.on_host]
        free = {h: self.totals[h] - self.machine.used_bytes(h, self.now) for h in hosts}
        return {h.node: HostState(max(0, size), 1.0) for h, size in free.items()}

    def _check_admission(self, new: Hosted) -> None:
        super()._check_admission(new)
        self.nodes[new.first] = node = new.placement.node
        running = [e for e in self.machine.executions.values() if e.placement.node == node]
        assert len(running) <= N_CORES, "more trials than cores"
        host = host_device_of(node)
        taken = self.promised_bytes(host) + self._beside_bytes(node)
        assert taken <= self.totals[host], f"over-committed by {taken - self.totals[host]}"

    def _beside_bytes(self, node: str) -> int:
        """Main memory that processes on GPUs have, or will."""
        busy = {e.process: self.plans[e.first].host_bytes for e in self.machine.executions.values()}
        everyone = {*self.machine.processes, *busy}
        on_gpus = [p for p in everyone if not p.devices[0].on_host and p.address.node == node]
        return sum(max(p.host_bytes, busy.get(p, 0)) for p in on_gpus)


def shared(
    planned: list[Plan], host_bytes: int = 8 * GB, n_gpus: int = 2, nodes: Sequence[str] = ("",)
) -> Shared:
    names = ["host", *(f"GPU-{n}" for n in range(n_gpus))]
    of_each = {name: host_bytes if name == "host" else 80 * GB for name in names}
    sizes = {f"{node}{name}": size for node in nodes for name, size in of_each.items()}
    return Shared(
        sizes, planned, limits=LIMITS, own_processes=True, n_ahead=16, chooser=Known(planned)
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    kinds = draw(st.sampled_from([frozenset(DeviceKind), frozenset({CPU}), frozenset({GPU})]))
    size = draw(st.sampled_from([GB // 2, GB, 3 * GB]))
    return Plan(
        request_bytes=size,
        peak_bytes=size,
        appears_after=draw(st.sampled_from([0.1, 2.0])),
        seconds=draw(st.floats(0.5, 6)),
        kinds=kinds,
        hosted_after=draw(st.floats(0, 2)),
        cpu_takes=draw(st.sampled_from([0.2, 1.0, 3.0])),
        host_bytes=900 * MB,
    )


@settings(max_examples=30, deadline=None, phases=[Phase.generate])
@given(
    planned=st.lists(plans(), min_size=4, max_size=14),
    host_bytes=st.sampled_from([4 * GB, 6 * GB, 30 * GB]),
    n_gpus=st.sampled_from([1, 2, 4]),
    nodes=st.sampled_from([("",), ("a/",), ("a/", "b/")]),
)
def test_neither_memory_nor_cores_of_a_machine_are_promised_twice(
    planned: list[Plan], host_bytes: int, n_gpus: int, nodes: Sequence[str]
) -> None:
    """This machine, or nodes of a cluster. `run` sees besides that all of them end."""
    shared(planned, host_bytes, n_gpus, nodes).run()


def one(kind: DeviceKind, size: int, seconds: float = 3.0) -> Plan:
    kinds, late = frozenset({kind}), 2.0
    return Plan(size, size, late, seconds, kinds=kinds, host_bytes=900 * MB)


def test_what_a_trial_on_the_cpu_was_promised_is_no_room_for_a_process_on_a_gpu() -> None:
    """Two on one GPU need twice 1 GB of the 4 GB; one on the CPU was promised 2.5 GB first."""
    world = shared([one(CPU, 2500 * MB), one(GPU, GB), one(GPU, GB)], 4 * GB, n_gpus=1)
    world.run()
    assert world.started == [0, 1, 2]
    assert world.now > 6, "the third waited for the first"


def test_no_gpu_waits_for_memory_that_the_cpu_has_taken_up() -> None:
    """Each of those on the CPU would fit beside what runs, and all of the memory be theirs."""
    planned = [one(GPU, GB), one(CPU, GB), one(CPU, GB), one(CPU, GB), one(GPU, GB)]
    world = shared(planned, 4 * GB, n_gpus=2)
    world.run()
    assert world.started[:3] == [0, 1, 4]


def test_who_waits_for_memory_beside_a_gpu_is_not_passed_by_those_for_the_cpu() -> None:
    """Else these would take each little that comes free. The last would fit at once."""
    planned = [one(GPU, GB), one(CPU, 1400 * MB), one(CPU, 1400 * MB), one(GPU, GB)]
    world = shared([*planned, one(CPU, 50 * MB)], 4 * GB, n_gpus=1)
    world.run()
    assert world.started == [0, 1, 2, 3, 4]


def brief(kind: DeviceKind, size: int, appears: float, seconds: float, hosted: float) -> Plan:
    kinds = frozenset({kind})
    return Plan(size, size, appears, seconds, kinds=kinds, hosted_after=hosted, host_bytes=900 * MB)


BRIEF = {
    "beside trials on its GPU": [
        brief(CPU, GB // 2, 0.1, 1.0, 1.0),
        brief(GPU, GB // 2, 0.1, 0.5, 0.5),
        brief(GPU, GB, 2.0, 0.5, 0.0),
        brief(GPU, GB // 2, 2.0, 2.0, 1.0),
        brief(CPU, GB, 0.1, 0.5, 2.0),
    ],
    "beside another idle process": [
        brief(GPU, GB, 2.0, 1.0, 0.5),
        brief(CPU, GB, 2.0, 4.0, 0.0),
        brief(GPU, GB, 2.0, 1.0, 1.0),
        brief(GPU, GB // 2, 2.0, 0.5, 1.0),
        brief(CPU, GB, 0.1, 4.0, 1.0),
    ],
}


@pytest.mark.parametrize("planned", BRIEF.values(), ids=BRIEF)
def test_an_idle_process_that_the_reading_does_not_show_yet_is_no_room(planned: list[Plan]) -> None:
    """Its trial on a GPU began and ended after the machine's memory was read."""
    shared(planned, 4 * GB, n_gpus=1).run()


def test_a_machine_with_fewer_cores_than_gpus_trains_what_only_it_can() -> None:
    world = shared([one(GPU, GB), one(CPU, GB), one(GPU, GB)], 2 * GB, n_gpus=4)
    world.run()
    assert set(world.told) == {0, 1, 2}


def test_who_finds_no_main_memory_on_one_node_goes_to_another() -> None:
    """Each has GPUs for four and main memory for two."""
    planned = [one(GPU, GB, seconds=5.0) for _ in range(6)]
    world = shared(planned, 2500 * MB, n_gpus=4, nodes=("a/", "b/"))
    world.run()
    assert sorted(world.nodes[n] for n in range(4)) == ["a", "a", "b", "b"]
    assert 10 < world.now < 16, "four side by side, then two"
