"""A table of devices tells what each device tells: for devices of any state, however they came to
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automl.admission.accounting.account import make_account
from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.idle_processes import Idle
from automl.admission.accounting.ledger import Ledger
from automl.admission.governor import SharingLimit
from automl.admission.limits import AdmissionLimits
from automl.admission.memory_caps import memory_caps
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import GIB, AdmissionRefusal, RefusalKind
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot, HostState
from automl.trial import (
    LOCAL_HOST,
    LOCAL_NODE,
    DeviceId,
    DeviceKind,
    DeviceShare,
    Placement,
    ProcessId,
    ResourceRequest,
    host_device_of,
)
from tests.admission.plain_placing import PlainPlacing
from tests.places import device_id, process_id

KINDS = ({DeviceKind.GPU}, {DeviceKind.GPU}, {DeviceKind.CPU}, set(DeviceKind))


class States:
    """Devices of a few nodes, in states that follow one another."""

    def __init__(self, random: Random) -> None:
        self.random, self.now, self.ledger = random, 1.0, Ledger()
        names = [f"{node}GPU-{n}" for node in ("a/", "", "b/") for n in range(random.randint(0, 3))]
        names += random.choice([[], ["a/host"], ["a/host", "b/host"], ["host"]])
        random.shuffle(names)
        names = names or ["GPU-0"]
        self.totals = {device_id(n): random.choice([8, 8, 24]) * GIB for n in names}
        self.processes = [process_id(10 + n, d.node) for n, d in enumerate(self.totals)]
        self.processes += [process_id(50 + n, d.node) for n, d in enumerate(self.totals)]
        self.limits = AdmissionLimits(random.choice([None, None, 6]), GIB, 5.0, max_per_gpu=3)
        self.idle: Idle = {}
        self.n_made = 0
        self.running: set[int] = set()
        self.reading = self.read()

    def read(self) -> DeviceReading:
        held = {
            (device, process): self.random.choice([0, 1, 2]) * GIB
            for device in dict.fromkeys(
                [*self.totals, *(host_device_of(d.node) for d in self.totals)]
            )
            for process in self.processes
            if process.node == device.node and self.random.random() < 0.4
        }
        hosts = {
            node: HostState(
                self.random.choice([1, 2, 4, 64]) * GIB,
                self.random.choice([None, 0.5, 1.0]),
                self.random.choice([None, 0, 1, 4]),
            )
            for node in ("a", "b", LOCAL_NODE)
            if self.random.random() < 0.7
        }
        elsewhere = {(d, "t1"): GIB for d in self.totals if self.random.random() < 0.1}
        shown = tuple(self._snapshot(device) for device in self.totals)
        fewer = {key: self.random.randint(0, size) for key, size in held.items()}
        return DeviceReading(self.now, shown, fewer, held, elsewhere, hosts)

    def _snapshot(self, device: DeviceId) -> DeviceSnapshot:
        random, total = self.random, self.totals[device]
        fault = "XID 79" if random.random() < 0.15 else None
        return DeviceSnapshot(
            device,
            "x",
            total,
            random.choice([total, total, total // 2, random.randint(0, total)]),
            utilisation=random.choice([None, 0.0, 0.4, 0.9]),
            processes=tuple(
                DeviceProcess(p.pid, 2 * GIB, GIB)
                for p in self.processes
                if p.node == device.node and random.random() < 0.3
            ),
            max_processes=random.choice([None, None, None, 1, 0]),
            fault=fault,
            lost=fault is not None and random.random() < 0.5,
        )

    def step(self) -> None:
        self.now += 1
        self.random.choice(
            [self._reserve, self._reserve, self._reserve, self._change, self._look, self._release]
        )()

    def _reserve(self) -> None:
        device, self.n_made = self.random.choice([*self.totals]), self.n_made + 1
        here = [p for p in self.processes if p.node == device.node]
        size = self.random.choice([0, 1, 3, 6]) * GIB
        odd = self.random.random()
        placement = Placement(
            (DeviceShare(device, "x", size),), exclusive=odd < 0.1, probing=0.1 <= odd < 0.2
        )
        process = self.random.choice([None, *here])
        self.ledger.reserve(self.n_made, placement, process)
        self.running.add(self.n_made)

    def _change(self) -> None:
        if not self.running:
            return
        key = self.random.choice([*self.running])
        self.ledger.context_up(key, self.now)
        self.ledger.observe_peak(key, self.random.choice([1, 5]) * GIB)
        if self.random.random() < 0.5:
            self.ledger.settle(key, GIB)

    def _release(self) -> None:
        if self.running:
            key = self.random.choice([*self.running])
            self.running.discard(key)
            self.ledger.release(key, self.now)

    def _look(self) -> None:
        """Another reading, or the same, of which something is said since; other limits; idle."""
        random, before = self.random, self.reading
        which = random.random()
        if which < 0.4:
            self.reading = self.read()
        elif which < 0.7:
            shown = (
                self._snapshot(d.address)
                if random.random() < 0.2
                else replace(d, power_watts=which)
                for d in before.devices
            )
            self.reading = replace(before, devices=tuple(shown), begun_seconds=self.now)
        else:
            elsewhere = {(d, "t2"): 2 * GIB for d in self.totals if random.random() < 0.5}
            self.reading = replace(before, promised_elsewhere=elsewhere)
        self.ledger.note(self.reading, ())
        seen = ((d, random.choice([0, 1, 4]) * GIB) for d in self.totals if random.random() < 0.3)
        self.ledger.note_foreign(seen)
        few = SharingLimit(random.choice([1, 2]), "they are faster so")
        sharing = {device: few for device in self.totals if random.random() < 0.3}
        self.limits = replace(self.limits, sharing=sharing)
        if random.random() < 0.5:  # what is held of the machines of a cluster changes
            hosts = [d for d in self.totals if d.on_host and d != LOCAL_HOST]
            self.limits = replace(self.limits, on_hosts={d: random.randint(0, 2) for d in hosts})
        self.idle = {
            (device,): [
                p for p in self.processes if p.node == device.node and random.random() < 0.5
            ]
            for device in self.totals
            if random.random() < 0.5
        }
        pairs = [(a, b) for a in self.totals for b in self.totals if a < b and a.node == b.node]
        for pair in pairs[:1]:
            here = [process for process in self.processes if process.node == pair[0].node]
            self.idle = {**self.idle, pair: [random.choice(here)]}

    def request(self) -> ResourceRequest:
        random = self.random
        size = random.choice([None, *(n * GIB for n in (0, 1, 3, 6, 7, 20, 40))])
        return ResourceRequest(
            size,
            n_devices=random.choice([1, 1, 1, 1, 2]),
            alone=size is None and random.random() < 0.4,
            undisturbed=random.random() < 0.1,
            joins_at_bytes=random.choice([None, 2 * GIB]) if size is None else None,
            kinds=frozenset(random.choice(KINDS)),
        )


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
@example(5728, True)  # idle processes of a host, where a trial of unknown size waits
def test_columns_tell_what_looking_at_one_device_after_the_other_tells(
    seed: int, in_process: bool
) -> None:
    states, kept = States(Random(seed)), DeviceTable()
    process = ProcessId("local", 10) if in_process else None
    for _ in range(12):
        states.step()
        request, ledger = states.request(), states.ledger.snapshot()
        by_kept_table, by_new_table = (
            place_trial(
                request,
                states.reading,
                ledger,
                states.limits,
                now_seconds=states.reading.begun_seconds,
                process=process,
                idle=states.idle,
                table=table,
            )
            for table in (kept, None)
        )
        assert by_kept_table == by_new_table
        plain = PlainPlacing(request, states.reading, ledger, states.limits, states.idle, process)
        if isinstance(by_new_table, Placement):
            assert plain.decide() == by_new_table.devices
            continue
        assert plain.decide() is by_new_table.kind
        is_of_memory = by_new_table.kind is RefusalKind.NO_ROOM and not by_new_table.of_host
        if is_of_memory and ledger.n_reservations:
            assert plain.in_the_way() == by_new_table.in_the_way


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_accounts_and_caps_that_are_kept_are_those_that_would_be_added_up_now(seed: int) -> None:
    states, table = States(Random(seed)), DeviceTable()
    told: dict[int, Mapping[DeviceId, int]] = {}
    for _ in range(12):
        states.step()
        ledger, headroom = states.ledger.snapshot(), states.limits.headroom_bytes
        kept = table.update(states.reading, ledger, headroom)
        assert [*kept.items()] == [
            (d.address, make_account(d, states.reading, ledger.on(d.address), headroom))
            for d in states.reading.devices
        ]
        assert table.disturbed == {d for d, here in kept.items() if not here.is_undisturbed}
        told |= memory_caps(kept, ledger, table.take_news())
        for key, of_all in memory_caps(kept, ledger, ledger.pages).items():
            assert told[key] == of_all


def test_what_a_reading_does_not_show_any_more_takes_nothing() -> None:
    states, table = States(Random(0)), DeviceTable()
    states.totals = {device_id("a/GPU-0"): 8 * GIB, device_id("b/GPU-0"): 8 * GIB}
    whole = DeviceReading(
        0.0, tuple(DeviceSnapshot(d, "x", t, t) for d, t in states.totals.items())
    )
    for shown, node in ((whole.devices, "a"), (whole.devices[1:], "b"), (whole.devices, "a")):
        now = DeviceReading(0.0, shown)
        found = place_trial(
            ResourceRequest(GIB),
            now,
            Ledger().snapshot(),
            states.limits,
            now_seconds=0.0,
            table=table,
        )
        assert isinstance(found, Placement)
        assert found.node == node


@pytest.mark.parametrize("request_", [ResourceRequest(20 * GIB), ResourceRequest(None, alone=True)])
def test_a_head_that_waits_is_refused_by_the_same_words(request_: ResourceRequest) -> None:
    """Of a hundred devices; only this machine's own account is looked at each time."""
    devices = {DeviceId(f"n{n // 8}", f"GPU-{n}"): 24 * GIB for n in range(96)}
    shown = tuple(DeviceSnapshot(d, "x", t, t // 2) for d, t in devices.items())
    reading, ledger, table = DeviceReading(0.0, shown), Ledger(), DeviceTable()
    ledger.reserve(0, Placement((DeviceShare(shown[5].address, "x", GIB),)), process_id(7, "n0"))
    limits = AdmissionLimits(None, GIB, 5.0)
    for kept in (table, table, None):
        found = place_trial(
            request_, reading, ledger.snapshot(), limits, now_seconds=0.0, table=kept
        )
        if request_.alone:
            assert isinstance(found, Placement)
            continue
        assert isinstance(found, AdmissionRefusal)
        assert found.kind is RefusalKind.NO_ROOM
        assert "11.0 GiB room on GPU-0" in found.reason


def test_a_machine_that_trains_nothing_is_not_said_to_be_faster_so() -> None:
    """A pace was found before the cluster took its cores away. The other is larger."""
    hosts = {device_id("a/host"): 8 * GIB, device_id("b/host"): 24 * GIB}
    reading = DeviceReading(0.0, tuple(DeviceSnapshot(d, "x", t, t) for d, t in hosts.items()))
    sharing = {device_id("a/host"): SharingLimit(2, "they are faster so")}
    limits = AdmissionLimits(None, GIB, 5.0, sharing=sharing, on_hosts=dict.fromkeys(hosts, 0))
    for alone in (True, False):
        request = ResourceRequest(None, alone=alone, kinds=frozenset({DeviceKind.CPU}))
        for table in (DeviceTable(), None):
            found = place_trial(
                request, reading, Ledger().snapshot(), limits, now_seconds=0.0, table=table
            )
            assert isinstance(found, AdmissionRefusal)
            assert found.reason.endswith("all places are taken, as many as the cores allow (0)")


def test_what_is_kept_for_gpus_is_known_of_a_machine_that_is_filed() -> None:
    """Its own account has room for three; where GPUs will need a process each it has none."""
    host, gpus = device_id("a/host"), [device_id(f"a/GPU-{n}") for n in range(2)]
    shown = tuple(DeviceSnapshot(d, "x", 4 * GIB, 4 * GIB) for d in (host, *gpus))
    reading = DeviceReading(0.0, shown, hosts={"a": HostState(4 * GIB, n_places=8)})
    table, ledger, limits = DeviceTable(), Ledger(), AdmissionLimits(None, GIB, 5.0)
    request = ResourceRequest(2 * GIB, kinds=frozenset({DeviceKind.CPU}))

    def decide() -> Placement | AdmissionRefusal:
        now = ledger.snapshot()
        return place_trial(request, reading, now, limits, now_seconds=0.0, table=table)

    assert isinstance(decide(), Placement), "while nothing runs on GPUs"
    ledger.reserve(0, Placement((DeviceShare(gpus[0], "x", GIB),)), process_id(7, "a"))
    refused = decide()
    assert isinstance(refused, AdmissionRefusal)
    assert refused.reason == (
        "waiting: 2.0 GiB asked, 1.0 GiB room on host of a; 2.0 GiB kept for trials on GPUs"
    )
