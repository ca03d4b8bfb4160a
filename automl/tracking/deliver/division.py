"""Decides which part of a study this process delivers, for a study that no other process delivers.

The protocol `DeliveryDivision` also covers a study that several sweeps share; `shared_division.py`
implements it for that case, and needs the database.
"""

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
    """The part of a study in PostgreSQL that a sweep delivers, as sent to its deliverer."""

    url: str
    """The URL of the database, with credentials; never show it."""
    study: str
    """The name of the study in the database."""
    store: str
    """The name of MLflow's store in the database."""
    sweep: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The id of the sweep that holds the trials.

    A new id holds none, so that the trials that other sweeps hold are left to them.
    """
    attends: bool = True
    """Whether the delivering process renews the lease; else the sweep does.

    When the sweep is stopped, its delivery has to stop, too, as it learns no news meanwhile.
    """

    @classmethod
    def of(cls, study: StudyConfig, tracking: TrackingConfig) -> SharedDeliveryJob | None:
        """Return the job of a command that runs no trials; None if the study is not shared.

        Raise ConfigError.
        """
        if not study.shared or study.storage is None or study.name is None:
            return None
        return cls(study.storage, study.name, mlflow_store_name(tracking))


def mlflow_store_name(tracking: TrackingConfig) -> str:
    """Return a name for MLflow's store: two sweeps with the same name write to the same store.

    Raise ConfigError.
    """
    uri = resolve_uri(tracking).absolute
    store = uri.without_credentials
    return store if uri.sqlite_path is None else f"{socket.gethostname()} {store}"


class DeliveryDivision(Protocol):
    """Says which part of a study this process delivers.

    One thread calls it, except for `check` and `note_run`, which every writer calls.
    """

    @property
    def standing(self) -> DeliveryStanding | None:
        """Return the state of a shared study's delivery; None if it is unknown, or not shared."""

    def begin_round(self, left: Collection[int]) -> bool:
        """Begin a round, once for each reading of the log.

        Return whether all of the log has to be read again. `left` are the trials that have ended
        and were left to others.
        """

    def claim(self, numbers: Collection[int]) -> Mapping[int, ClaimedTrialRun] | None:
        """Return the trials among `numbers` to deliver now, with what is known about their runs.

        Return None if all are to be delivered. Raise ValueNotTakenError.
        """

    def check(self) -> None:
        """Raise ValueNotTakenError when another process may deliver; called before each write."""

    def note_run(self, trial: int, run: str) -> str:
        """Return the run that the trial has from now on. Raise ValueNotTakenError."""

    def note_study(self, experiment: str, parent: str) -> str:
        """Return the study's own run from now on. Raise ValueNotTakenError."""

    def note_round(self, done: Collection[int], offset: int) -> None:
        """Note the trials that the store has completely.

        The study's own values are delivered up to the byte `offset` of the log. Raise
        ValueNotTakenError.
        """

    def forget(self, parent: str | None) -> None:
        """Note that the runs below the run `parent` are gone. Raise ValueNotTakenError."""

    def read_again(self) -> None:
        """Make the next round read all of the log again."""

    def may_end(self, offset: int, *, waits: bool) -> str | None:
        """Return a text if the delivery may end, None if it has to ask again.

        The log was delivered up to the byte `offset`; with `waits` some events were not delivered.
        The text says which trials are left to others, and is empty if none are.
        """

    def end(self) -> Mapping[int, str]:
        """Leave the rest to others, and return all runs that are known, by trial number."""


class WholeStudyDivision:
    """A `DeliveryDivision` by which this process delivers all of the study."""

    standing = None

    def begin_round(self, left: Collection[int]) -> bool:
        return False

    def claim(self, numbers: Collection[int]) -> None:
        return None

    def check(self) -> None:
        """Do nothing: no other process writes."""

    def note_run(self, trial: int, run: str) -> str:
        return run

    def note_study(self, experiment: str, parent: str) -> str:
        return parent

    def note_round(self, done: Collection[int], offset: int) -> None:
        """Do nothing: `events.delivered` has the offset."""

    def forget(self, parent: str | None) -> None:
        """Do nothing: `events.delivered` is reset by its owner."""

    def read_again(self) -> None:
        """Do nothing: no other process holds trials."""

    def may_end(self, offset: int, *, waits: bool) -> str | None:
        return ""

    def end(self) -> Mapping[int, str]:
        return {}
