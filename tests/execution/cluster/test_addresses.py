"""Which cluster an address stands for, and those that are refused before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from automl.errors import ConfigError
from automl.execution.cluster import agent_actor
from automl.execution.cluster.ray_cluster import _find_head

NOBODY = "127.0.0.1:1"


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> set[str]:
    """The heads that Ray finds among this machine's processes: others may be at work here."""
    found: set[str] = set()
    services: Any = ray._private.services
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: found)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return found


@pytest.fixture
def head() -> Iterator[str]:
    listening = agent_actor.open_listening_port("127.0.0.1")
    assert listening is not None
    with listening:
        yield agent_actor.socket_address(listening)


def test_auto_is_the_cluster_that_runs_here(running: set[str], head: str) -> None:
    running.add(head)
    assert _find_head(ray, "auto") == head


def test_auto_where_none_runs_is_refused_with_the_remedy(running: set[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        _find_head(ray, "auto")
    assert str(refused.value) == (
        "ray.address=auto: no Ray cluster runs on this machine. Start one with: ray start --head, "
        "or use ray.address=local."
    )


def test_what_a_killed_head_has_left_is_no_cluster(running: set[str], tmp_path: Path) -> None:
    """Ray would try to reach it for minutes."""
    (left := tmp_path / "ray" / "ray_current_cluster").parent.mkdir()
    left.write_text(NOBODY)
    with pytest.raises(ConfigError, match=f"auto: no Ray cluster at {NOBODY} .* ray start --head"):
        _find_head(ray, "auto")


def test_rays_own_variable_comes_first(
    running: set[str], head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.add("127.0.0.1:2")
    monkeypatch.setenv("RAY_ADDRESS", head)
    assert _find_head(ray, "auto") == head
    assert _find_head(ray, head) == head
    monkeypatch.setenv("RAY_ADDRESS", NOBODY)
    with pytest.raises(ConfigError, match=f"RAY_ADDRESS={NOBODY}: no Ray cluster there"):
        _find_head(ray, "auto")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(ConfigError, match="RAY_ADDRESS=local: must be HOST:PORT"):
        _find_head(ray, "auto")


def test_rays_own_variable_is_refused_as_the_setting_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ray.address=auto Ray would take it, and every report a way through its client server."""
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ConfigError, match="RAY_ADDRESS=ray://head:10001"):
        _find_head(ray, "auto")
