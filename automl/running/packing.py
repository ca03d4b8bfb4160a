"""Which waiting trials start together as one pack, and who may take a lane of one that runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from automl.admission.reasons import Refusal
from automl.admission.requests import Requests
from automl.running.messages import Execution, Kind, Start, Waiting
from automl.running.ports import Ports
from automl.trial import DeviceKind, Placement, Request


@dataclass
class Packing:
    """Knows the kinds of those that wait. For the main thread."""

    ports: Ports
    requests: Requests
    _kinds: dict[tuple[int, bool], Kind | None] = field(default_factory=dict)
    """By number and whether on the host; asked for once."""

    def kind(self, waiting: Waiting, *, on_host: bool) -> Kind | None:
        """What it can go together with on such a device; None: it trains alone there."""
        key = (waiting.trial.number, on_host)
        if waiting.may_pack and key not in self._kinds:
            self._kinds[key] = self.ports.kind_of(waiting.trial, on_host=on_host)
        return self._kinds[key] if waiting.may_pack else None

    def started(self, number: int) -> None:
        """It waits no more."""
        for on_host in (True, False):
            self._kinds.pop((number, on_host), None)

    def request(self, members: Sequence[Waiting], kind: DeviceKind) -> Request:
        """What they ask for as one pack."""
        return self.requests.of_pack([waiting.trial.params for waiting in members], kind)

    def same(
        self,
        first: Waiting,
        waiting: Iterable[Waiting],
        one_more: Callable[[], Waiting | None],
        *,
        on_host: bool,
    ) -> list[Waiting]:
        """The first and those of its kind, at most its lanes; `one_more` asks for another."""
        kind = self.kind(first, on_host=on_host)
        if kind is None:
            return [first]
        where = DeviceKind.CPU if on_host else DeviceKind.GPU
        now = (first if w.trial == first.trial else w for w in waiting)  # as it has chosen now
        there = (w for w in now if w.may_go(where))
        same = [w for w in there if self.kind(w, on_host=on_host) == kind]
        while len(same) < kind.n_lanes and (another := one_more()) is not None:
            if self.kind(another, on_host=on_host) == kind:
                same.append(another)
        return same[: kind.n_lanes]

    def placed(
        self,
        group: Sequence[Waiting],
        request: Request,
        placement: Placement,
        place: Callable[[Request], Placement | Refusal],
    ) -> Start:
        """As many of the group as fit as one pack; else its first alone, for which this request has
        this placement."""
        while len(group) > 1:
            pack = self.request(group, placement.kind)
            decision = place(pack)
            if isinstance(decision, Placement):
                return Start(group, pack, decision)
            group = group[: len(group) // 2]
        return Start(group, request, placement)

    def for_lane(self, execution: Execution, waiting: Iterable[Waiting]) -> Waiting | None:
        """Who takes a lane of this pack that came free; None: another waits first."""
        on_host, where = execution.placement.on_host, execution.placement.kind
        head = next((w for w in waiting if w.may_go(where)), None)
        if head is None or self.kind(head, on_host=on_host) != execution.kind:
            return None
        return head if self.is_promised(execution, head) else None

    def is_promised(self, execution: Execution, head: Waiting) -> bool:
        """Whether a pack's promise is enough with the head in its free lane. It is for all that is
        no larger than what the pack began with, whatever was learned since."""
        kind = execution.placement.kind
        request = self.request([*execution.live, head], kind)
        has_room = execution.has_room_for(request)
        if has_room or request.memory_bytes is None:
            return has_room
        began = list(execution.members.values())[: execution.n_lanes]
        first_bytes = self.request(began, kind).memory_bytes
        return first_bytes is not None and request.memory_bytes <= first_bytes


def fair_share(n_lanes: int, n_waiting: int, n_free: int) -> int:
    """When nothing is left to ask for, the rest is divided among those that could run it."""
    return min(n_lanes, math.ceil(n_waiting / max(1, n_free)))
