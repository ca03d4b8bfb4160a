"""What each node is to have, as the sweep has it."""

from __future__ import annotations

import os

import pytest

from automl.execution.cluster.agent_actor import process_start, software_versions
from automl.execution.cluster.nodes import NodeMismatchError
from automl.execution.cluster.ray_cluster import _compare


def test_a_node_with_other_versions_is_refused_and_which_are_said() -> None:
    ours = software_versions()
    _compare("node-b", ours, dict(ours))
    theirs = {**ours, "torch": "2.0.0", "automl-sweep": "none"}
    with pytest.raises(NodeMismatchError, match="node node-b has ") as refused:
        _compare("node-b", ours, theirs)
    assert f"torch 2.0.0 (here {ours['torch']})" in str(refused.value)
    assert f"automl-sweep none (here {ours['automl-sweep']})" in str(refused.value)
    assert "ray" not in str(refused.value)


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    assert process_start(os.getpid()) is not None
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert process_start(child) is None, "a zombie"
    os.waitpid(child, 0)
    assert process_start(child) is None
