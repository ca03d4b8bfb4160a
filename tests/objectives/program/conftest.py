"""Programs that are carried out as trials, in a project's folder."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from automl.objectives.program.command_session import open_session
from automl.objectives.program.program_flags import CommandSetup
from automl.trial import (
    Direction,
    ObjectiveSession,
    Params,
    Placement,
)
from tests.models.conftest import Listener, make_spec
from tests.places import ON_HOST

Run = Callable[..., Listener]


@pytest.fixture
def sessions() -> Iterator[list[ObjectiveSession]]:
    opened: list[ObjectiveSession] = []
    yield opened
    for session in opened:
        session.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: list[ObjectiveSession]) -> Run:
    """Carry a Python program out as a trial, in a project's folder."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")

    def run(
        source: str,
        *,
        arguments: str = "{json}",
        params: Params | None = None,
        listener: Listener | None = None,
        placement: Placement = ON_HOST,
        direction: Direction = Direction.minimize,
        pattern: str | None = None,
        grace_seconds: float = 20.0,
        silent_seconds: float = 600.0,
        number: int = 0,
        wandb: bool = False,
    ) -> Listener:
        Path("train.py").write_text(source)
        command = f"{shlex.quote(sys.executable)} train.py {arguments}"
        setup = CommandSetup(
            command,
            pattern,
            "val_loss",
            direction,
            grace_seconds,
            silent_seconds=silent_seconds,
            wandb=wandb,
        )
        session = open_session(setup)
        sessions.append(session)
        listener = listener or Listener()
        spec = make_spec(tmp_path / "studies", params or {"lr": 0.5}, number)
        session.run(spec, placement, listener)
        return listener

    return run
