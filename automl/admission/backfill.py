"""Who may start before the head of the queue without delaying it (EASY backfill: Lifka, 1995,
https://doi.org/10.1007/3-540-60153-8_35). Pure, and decided by `policy.place` alone: it is asked
about the devices as they are thought to be when some of what runs will have ended.

The head has a promise: devices, and the time from which it fits there. Another may start if the
head still fits there then. When durations are exact it is never later for that. Where they are
rough it may be, but once its time has come nobody passes it any more: so it does not starve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from automl.admission.reasons import Refusal
from automl.admission.situation import Situation
from automl.trial import DeviceId, Placement, Request


@dataclass(frozen=True)
class Promise:
    """Where and from when on the head is to start."""

    devices: frozenset[DeviceId]
    at_seconds: float
    at_once: bool = True
    """False: idle processes have to end first."""
    soonest_seconds: float | None = None
    """It may fit so soon, if contexts that are to come leave some of what is kept free for them;
    None: not sooner for that."""


def promise(head: Request, now: Situation) -> Promise | None:
    """The earliest that the head can be given; None: of nothing in its way the end is known."""
    found = _earliest(head, now)
    if found is None or not now.awaits_contexts:
        return found
    hoped = now.once_contexts_show()
    decision = hoped.place(head)
    if isinstance(decision, Placement) or decision.in_the_way:
        return replace(found, soonest_seconds=now.now_seconds)
    sooner = _earliest(head, hoped)
    if sooner is None or sooner.at_seconds >= found.at_seconds:
        return found
    return replace(found, soonest_seconds=sooner.at_seconds)


def _earliest(head: Request, now: Situation) -> Promise | None:
    """The soonest ends first, whichever device they are on: what comes later than the answer is
    never thought out. At the same time the device that is read first."""
    choices = [*_choices(head, now)]
    ends = [(at, n) for n, devices in enumerate(choices) for at in now.ends_on(devices)]
    for at_seconds, n in sorted(ends):
        if not now.may_have_room(head, choices[n], at_seconds):
            continue
        decision = now.later(at_seconds, choices[n]).place(head)
        if isinstance(decision, Placement):
            return Promise(frozenset(decision.devices), at_seconds)
        if decision.in_the_way:
            return Promise(decision.in_the_way, at_seconds, at_once=False)
    return None


def overtake(
    request: Request, key: int, seconds: float, head: Request, promised: Promise, now: Situation
) -> Placement | None:
    """Where this one may start now and run for so long; None: it would delay the head.

    It has to be over by the time promised, and so long before that a reading shows it.
    """
    if now.now_seconds >= promised.at_seconds:
        return None
    end_seconds = now.now_seconds + seconds + now.limits.stale_seconds
    if promised.soonest_seconds is not None and end_seconds > promised.soonest_seconds:
        return None  # beside the head there may be less room then than is known now
    elsewhere = now.devices - promised.devices
    for devices in (None, elsewhere) if elsewhere else (None,):
        placement = now.place(request, devices)
        if isinstance(placement, Refusal):
            return None
        then = now.with_one_more(key, placement, end_seconds)
        if _is_kept(promised, then.later(promised.at_seconds, promised.devices).place(head)):
            return placement
    return None


def _choices(head: Request, now: Situation) -> Iterator[frozenset[DeviceId]]:
    """Devices to look at by themselves: what wants several, or the largest, is told all."""
    if head.n_devices > 1 or head.alone:
        yield now.devices
        return
    for device in now.reading.devices:
        yield frozenset({device.address})


def _is_kept(promised: Promise, decision: Placement | Refusal) -> bool:
    if isinstance(decision, Placement):
        return True
    return not promised.at_once and bool(decision.in_the_way)
