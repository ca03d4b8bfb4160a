"""The delivering process's loop: what it does while MLflow takes nothing, and when told to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from automl.tracking.deliver import process
from automl.tracking.deliver.study_delivery import EventLogDelivery
from automl.tracking.mlflow_store import NotDeliveredError

PATIENCE_SECONDS = 120.0


class Heard(process.ParentChannel):
    """Messages that would go to the parent."""

    def __init__(self) -> None:
        self.messages: list[dict[str, object]] = []
        self.troubled = threading.Event()

    def send(self, **message: object) -> None:
        self.messages.append(message)
        if message.get("trouble"):
            self.troubled.set()


class Deaf:
    """A store that takes nothing until it is mended."""

    def __init__(self) -> None:
        self.mended = threading.Event()
        self.offset, self.n_left = 0, 1
        self.note_taken: Callable[[], None] = lambda: None

    def read(self) -> bool:
        return False

    def deliver(self, *, everything: bool) -> None:
        if not self.mended.is_set():
            raise NotDeliveredError("refused")

    def may_end(self) -> str:
        return ""

    def end(self) -> None:
        """It has no others."""


class Unreadable(Deaf):
    """An event log on a disk that fails until it is mended."""

    def read(self) -> bool:
        if not self.mended.is_set():
            raise OSError("Input/output error")
        return False


@pytest.mark.parametrize("kind", [Deaf, Unreadable])
def test_the_word_to_drain_ends_a_pause(monkeypatch: pytest.MonkeyPatch, kind: type[Deaf]) -> None:
    """Else a store that answers again would be waited for by nobody when the sweep ends."""
    monkeypatch.setattr(process, "MAX_BACKOFF_SECONDS", 10 * PATIENCE_SECONDS)
    store, heard, draining = kind(), Heard(), threading.Event()
    loop = process._DeliveryLoop(cast(EventLogDelivery, store), heard, draining)
    loop._backoff_seconds = 10 * PATIENCE_SECONDS  # after many failures
    delivering = threading.Thread(target=loop.run, daemon=True)
    delivering.start()
    assert heard.troubled.wait(PATIENCE_SECONDS)
    store.mended.set()
    draining.set()
    delivering.join(PATIENCE_SECONDS)
    assert not delivering.is_alive()
    assert {"trouble": None} in heard.messages


class HardOfHearing(Deaf):
    """A store that takes one update at each call, and fails over the next."""

    def __init__(self) -> None:
        super().__init__()
        self.n_left = 4

    def deliver(self, *, everything: bool) -> None:
        self.n_left -= 1
        if self.n_left:
            raise NotDeliveredError("lost")


def test_a_store_that_takes_some_of_it_is_tried_again_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a network that loses one reply in ten would look like a server that is away."""
    monkeypatch.setattr(process, "FIRST_BACKOFF_SECONDS", 10 * PATIENCE_SECONDS)
    store, heard, draining = HardOfHearing(), Heard(), threading.Event()
    draining.set()
    loop = process._DeliveryLoop(cast(EventLogDelivery, store), heard, draining)
    delivering = threading.Thread(target=loop.run, daemon=True)
    delivering.start()
    delivering.join(PATIENCE_SECONDS)
    assert not delivering.is_alive()
    troubles = [message["trouble"] for message in heard.messages if "trouble" in message]
    assert troubles == [None, "lost"] * 3 + [None], "each time the patience begins anew"


class TakesLong(Deaf):
    """A store that takes one update after trouble, and hangs over the next."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()

    def deliver(self, *, everything: bool) -> None:
        if self.mended.is_set():
            self.note_taken()
            self.hangs.set()
            threading.Event().wait()
        self.mended.set()
        raise NotDeliveredError("lost")


def test_what_is_taken_in_a_long_round_is_told_at_once() -> None:
    """The sweep would lose its patience, while a busy server takes one trial after another."""
    store, heard, draining = TakesLong(), Heard(), threading.Event()
    draining.set()
    loop = process._DeliveryLoop(cast(EventLogDelivery, store), heard, draining)
    threading.Thread(target=loop.run, daemon=True).start()
    assert store.hangs.wait(PATIENCE_SECONDS)
    troubles = [message["trouble"] for message in heard.messages if "trouble" in message]
    assert troubles == ["lost", None]
