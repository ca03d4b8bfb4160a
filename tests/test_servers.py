"""What the fork server of tests is there for: its children load none of it again."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

import pytest

from automl.execution.worker_process import FORK_SERVER_CONTEXT
from tests.fork_server import fork_server_with

HEAVY = ("pandas", "sklearn.ensemble", "torch", "torch._dynamo")


def tell(pipe: Connection) -> None:
    pipe.send([name for name in HEAVY if name in sys.modules])


@pytest.mark.slow
def test_its_children_have_what_takes_seconds_to_load() -> None:
    fork_server_with()
    ours, theirs = FORK_SERVER_CONTEXT.Pipe()
    child = FORK_SERVER_CONTEXT.Process(target=tell, args=(theirs,))
    child.start()
    assert ours.recv() == list(HEAVY)
    child.join()
