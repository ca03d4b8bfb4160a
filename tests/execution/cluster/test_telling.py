"""Commands go with the call for news where they can, each once and in their order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

import pytest

from automl.devices.device_reading import DeviceReading
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.agent import NodeAgent
from automl.execution.cluster.node import CommandQueue
from automl.execution.worker_process import WorkerLimits
from automl.trial import ProcessEntry

T = TypeVar("T")
STOP, KILL = m.StopTrials(), m.KillWorkers("a word")


def beside(call: Callable[[], T]) -> Future[T]:
    """In a thread, which has begun to wait, or is over."""
    thread = ThreadPoolExecutor(1)
    called = thread.submit(call)
    thread.shutdown(wait=False)
    wait([called], timeout=0.2)
    return called


def test_a_call_for_news_takes_along_what_there_is() -> None:
    telling = CommandQueue()
    telling.put(STOP)
    telling.put(KILL)
    assert telling.take_for_poll(0) == m.CommandBatch(0, (STOP, KILL))
    telling.note_answer()
    telling.put(STOP)
    assert telling.take_for_poll(0) == m.CommandBatch(2, (STOP,))


def test_replies_are_waited_for_and_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automl.execution.cluster.node.REPLY_SECONDS", 60.0)
    telling = CommandQueue()
    asked = beside(lambda: telling.take_for_poll(2))
    telling.put(STOP)
    wait([asked], timeout=0.2)
    assert not asked.done()
    telling.put(KILL)
    assert asked.result(60) == m.CommandBatch(0, (STOP, KILL))


def test_a_command_goes_by_itself_only_while_a_call_for_news_is_on_its_way() -> None:
    telling = CommandQueue()
    telling.put(STOP)
    alone = beside(telling.take_alone)
    assert not alone.done(), "the next call takes it along"
    assert telling.take_for_poll(0) == m.CommandBatch(0, (STOP,))
    telling.put(KILL)
    assert alone.result(60) == m.CommandBatch(1, (KILL,))
    telling.note_answer()
    late = beside(telling.take_alone)
    telling.put(STOP)
    wait([late], timeout=0.2)
    assert not late.done()
    telling.end()
    assert late.result(60) is None


def test_an_agent_does_nothing_before_what_was_numbered_before_it(tmp_path: Path) -> None:
    agent = NodeAgent(lambda held: DeviceReading(0.0), 0.1, leave=lambda: None)
    work = m.NodeSetup(WorkerLimits(max_workers=1), str(tmp_path), "marker", "none")
    agent.set_up(ProcessEntry("tests.execution.objectives:open_scripted"), work)
    later = beside(lambda: agent.tell(m.CommandBatch(1, [KILL])))
    assert not later.done()
    agent.tell(m.CommandBatch(0, [STOP]))
    later.result(60)
    agent.close()
