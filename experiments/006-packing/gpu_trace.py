"""Every allocation of one objective, with its address, replayed through the model of the allocator.

On a GPU torch's own history of its caching allocator, and what it reserved in truth; on the CPU,
for dry runs, the profiler's. In a process of its own, so that nothing is reserved at the start.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_workers import spec_of
from torch._C._profiler import _EventType

import automl
from automl.measure.survey.allocator import CachingAllocator, MemoryBlock
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_objective
from automl.trial import Params
from tests.measure.survey.truth import NoReports

MOST_EVENTS = 2_000_000
NOWHERE = Path(tempfile.gettempdir()) / "traced"
"""Nothing is written there: reports go nowhere."""


class Change(NamedTuple):
    """Memory is taken (above 0 bytes) or given back."""

    address: int
    n_bytes: int


@dataclass(frozen=True)
class Question:
    """What a process is asked to trace."""

    setup: SessionSetup
    params: Params
    uuid: str | None
    """Of the GPU; None: on the CPU."""


@dataclass(frozen=True)
class Traced:
    """What torch and the model of its allocator took at most, in bytes."""

    model_allocated: int
    model_reserved: int
    allocated: int | None = None
    reserved: int | None = None
    """None: on the CPU torch reserves nothing."""


def trace(question: Question) -> Traced:
    """For `automl.execution.child_calls.call_in_child`."""
    if question.uuid is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = question.uuid
    torch.set_num_threads(1)
    objective = open_objective(question.setup)
    device = "cpu" if question.uuid is None else "cuda:0"

    def run() -> None:
        spec = spec_of(0, question.params, NOWHERE)
        objective(automl.TrialContext(spec, devices=(device,), seed=0, record=NoReports()))

    return _on_cpu(run) if question.uuid is None else _on_gpu(run)


def replayed(changes: Iterable[Change]) -> CachingAllocator:
    """The model, after all of them. What was taken before the first is none of it."""
    model, blocks = CachingAllocator(), dict[int, MemoryBlock]()
    for address, n_bytes in changes:
        if n_bytes > 0:
            blocks[address] = model.allocate(n_bytes)
        elif (block := blocks.pop(address, None)) is not None:
            model.free(block)
    return model


def _on_gpu(run: Any) -> Traced:
    history: Any = torch.cuda.memory
    torch.cuda.init()  # type: ignore[no-untyped-call]
    history._record_memory_history("all", context=None, max_entries=MOST_EVENTS)
    run()
    torch.cuda.synchronize()
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    entries = history._snapshot()["device_traces"][0]
    assert len(entries) < MOST_EVENTS, "the oldest were overwritten"
    model = replayed(gpu_changes(entries))
    return Traced(model.peak_allocated_bytes, model.peak_reserved_bytes, allocated, reserved)


def gpu_changes(entries: Iterable[Any]) -> Iterator[Change]:
    """Of torch's history; what frees and takes whole segments is the allocator's own doing."""
    for entry in entries:
        if entry["action"] == "alloc" and entry["size"] > 0:
            yield Change(entry["addr"], entry["size"])
        elif entry["action"] == "free_completed":
            yield Change(entry["addr"], -entry["size"])


def _on_cpu(run: Any) -> Traced:
    profile = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    )
    with profile:
        run()
    results: Any = profile.profiler.kineto_results  # type: ignore[union-attr]
    model = replayed(_cpu_changes(results.experimental_event_tree()))
    return Traced(model.peak_allocated_bytes, model.peak_reserved_bytes)


def _cpu_changes(events: list[Any]) -> list[Change]:
    stack = list(events)
    found: list[tuple[int, int, Change]] = []
    while stack:
        event = stack.pop()
        stack += event.children
        if event.tag == _EventType.Allocation and event.extra_fields.alloc_size:
            change = Change(event.extra_fields.ptr, event.extra_fields.alloc_size)
            found.append((event.start_time_ns, len(found), change))
    return [change for _, _, change in sorted(found)]
