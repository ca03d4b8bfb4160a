"""What of a study this process delivers: all, or its part of one that several sweeps share."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from automl.config import StudyConfig, TrackingConfig
from automl.tracking.tracking_uri import resolve_uri

if TYPE_CHECKING:
    from automl.record.sharing.delivery_tables import ClaimedTrialRun, DeliveryStanding


@dataclass(frozen=True)
class SharedDeliveryJob:
    """The part of a study in PostgreSQL that a sweep delivers."""

    url: str
    """Of the database, with credentials; never to be shown."""
    study: str
    """Its name there."""
    store: str
    """The store of MLflow, as the database knows it."""
    sweep: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Who holds the trials; without one nobody does, and what others hold is left to them."""
    attends: bool = True
    """The delivering process renews the lease; else the sweep does, and when it is stopped, so is
    its delivery: what happens meanwhile it cannot know."""

    @classmethod
    def of(cls, study: StudyConfig, tracking: TrackingConfig) -> SharedDeliveryJob | None:
        """For a command that runs no trials; None: the study is not shared. Raises ConfigError."""
        if not study.shared or study.storage is None or study.name is None:
            return None
        return cls(study.storage, study.name, mlflow_store_name(tracking))


def mlflow_store_name(tracking: TrackingConfig) -> str:
    """The store of MLflow: two sweeps that name it alike write to the same. Raises ConfigError."""
    uri = resolve_uri(tracking).absolute
    store = uri.without_credentials
    return store if uri.sqlite_path is None else f"{socket.gethostname()} {store}"


class DeliveryDivision(Protocol):
    """Asked by one thread, but for `check` and `note_run`: these by every writer."""

    @property
    def standing(self) -> DeliveryStanding | None:
        """How the delivery of a shared study stands; None: it is not known, or not shared."""

    def begin_round(self, left: Collection[int]) -> bool:
        """Once for each reading of the log: whether all of it is to be read again. `left` are
        trials that have ended and were left to others."""

    def claim(self, numbers: Collection[int]) -> Mapping[int, ClaimedTrialRun] | None:
        """Those of these trials that are to be delivered now, and what is known of them; None: all
        are. Raises NotTakenError."""

    def check(self) -> None:
        """Before each run that is written. Raises NotTakenError where another may deliver it."""

    def note_run(self, trial: int, run: str) -> str:
        """The run that the trial has from now on. Raises NotTakenError."""

    def note_study(self, experiment: str, parent: str) -> str:
        """As `note_run`: the study's own."""

    def note_round(self, done: Collection[int], offset: int) -> None:
        """The store has these trials whole, and the study's own values up to that byte of the log.
        Raises NotTakenError."""

    def forget(self, parent: str | None) -> None:
        """The runs of that study's run are gone. Raises NotTakenError."""

    def read_again(self) -> None:
        """All of the log, with the next round."""

    def may_end(self, offset: int, *, waits: bool) -> str | None:
        """Whether nothing is left to do once the log was delivered up to that byte: a text, which
        says what is left to others; None: ask again. `waits`: something was not delivered."""

    def end(self) -> Mapping[int, str]:
        """Leave the rest to others; all runs that are known."""


class WholeStudyDivision:
    """All is this process's."""

    standing = None

    def begin_round(self, left: Collection[int]) -> bool:
        return False

    def claim(self, numbers: Collection[int]) -> None:
        return None

    def check(self) -> None:
        """Nobody else writes."""

    def note_run(self, trial: int, run: str) -> str:
        return run

    def note_study(self, experiment: str, parent: str) -> str:
        return parent

    def note_round(self, done: Collection[int], offset: int) -> None:
        """`events.delivered` has it."""

    def forget(self, parent: str | None) -> None:
        """As above."""

    def read_again(self) -> None:
        """There is no need to."""

    def may_end(self, offset: int, *, waits: bool) -> str | None:
        return ""

    def end(self) -> Mapping[int, str]:
        return {}
