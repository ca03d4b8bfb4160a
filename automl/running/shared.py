"""A study that several sweeps work on, wired into one of them; nothing of it is loaded for others.

What the others do comes as messages (`Others`), from the thread that keeps in touch with them.
MLflow has one deliverer of the study for each of its stores: the sweep that is elected in the
database, and another when that one has not renewed it for a lease.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from automl.config import TrackingConfig
from automl.errors import AutoMLError, ConfigError
from automl.record.directory import StudyDirectory
from automl.record.sharing.database import DatabaseAwayError
from automl.record.sharing.folder import JOINED, has_others_checkpoints
from automl.record.sharing.keeper import GIVE_UP_SECONDS
from automl.record.sharing.shared import Shared, Standing
from automl.running.alone import Busy, Post
from automl.running.messages import Broke, Others
from automl.running.prepared import Prepared
from automl.search.shared_study import SharedStudy, open_shared
from automl.tracking.delivery import Delivery
from automl.tracking.uri import resolve_uri

logger = logging.getLogger(__name__)

SUCCESSION_SECONDS = 30.0
"""A sweep that ends waits so long for the deliverer before it to end, where the study is done."""


def refuse_unshareable(prepared: Prepared) -> None:
    """Raises ConfigError for what only one sweep can do."""
    if prepared.asks_for_params:
        raise ConfigError(
            "objective=optuna: params that an objective asks for while it runs are not shared "
            "between sweeps. Write them as the space (space.NAME=…), or leave study.storage out; "
            "postgresql+psycopg2://… keeps the study in Optuna's own tables, for one sweep."
        )
    if prepared.called is not None and prepared.called.changed:
        raise ConfigError(
            "changed=True: a function that goes on as it is now would be another on each machine "
            "of a shared study. Begin a new study.name with it."
        )


def join(
    prepared: Prepared, directory: StudyDirectory, stored_config: str
) -> tuple[Shared, SharedStudy]:
    """Take part in the study, which is made if it is not there. Raises AutoMLError."""
    refuse_unshareable(prepared)
    config = prepared.config
    shared = Shared.open(config.study, directory.path)
    try:
        study = SharedStudy.open(
            config.study,
            space=prepared.space,
            sampler=prepared.sampler,
            pruner=prepared.pruner,
            identity=prepared.identity,
            defaults=prepared.identity_defaults,
            directory=directory.path,
            choice=prepared.choice,
            pruners=prepared.pruners,
            portfolio=prepared.portfolio,
            opened=open_shared(shared, stored_config),
        )
    except BaseException:
        shared.close()
        raise
    return shared, study


class Together:
    """The others of a shared study, for one sweep."""

    may_run = True

    def __init__(self, shared: Shared, study: SharedStudy, directory: StudyDirectory) -> None:
        self._shared, self._study, self._directory = shared, study, directory
        self._delivery: ElectedDelivery | None = None

    def is_lost(self, trial: int) -> bool:
        """Whether a trial of this sweep is another's by now. From any thread."""
        return not self._shared.log.holds(trial)

    def deliver(self, tracking: TrackingConfig, start: Callable[[], Delivery]) -> ElectedDelivery:
        """Deliver to MLflow whenever this sweep is elected. Raises AutoMLError."""
        self._delivery = ElectedDelivery(self._shared, tracking, start)
        return self._delivery

    def start(self, busy: Busy, post: Post) -> None:
        """From now on `post` hears once a second how the study stands."""

        def tell(standing: Standing) -> None:
            held = self._shared.log.holds
            left, run = standing.n_left, standing.others_run
            post(Others(standing.n_trials, left, run, held, self._is_away, self._hear))

        self._shared.start(busy, tell, self._stand, lambda error: post(Broke(error)))

    def greeting(self) -> Iterator[str]:
        """What a trial that is taken over has of its past; lines for people."""
        path = self._directory.path
        if path.parent.parent.name == JOINED:
            yield f"another sweep is at work in this folder: this one joins it, in {path}"
        elif not has_others_checkpoints(path):
            yield (
                "trials that are taken over from a machine with another study.dir begin again: "
                "their checkpoints are there; what they reported is not told twice"
            )

    def settle(self, timeout_seconds: float) -> str | None:
        """Have all that was logged in the database, and the study's copy whole; returns why that
        cannot be now."""
        if self._shared.drain(timeout_seconds):
            self._study.hear()
            return None
        return self._shared.trouble or "it takes too long"

    def trouble(self) -> str | None:
        """Why the database does not answer now."""
        return self._shared.trouble

    def close(self) -> None:
        """Give back the trials that have not ended."""
        self._shared.close()

    def _is_away(self) -> bool:
        return self._shared.is_away

    def _hear(self) -> int:
        self._study.hear()
        return self._study.n_asked

    def _stand(self) -> None:
        if self._delivery is not None:
            try:
                self._delivery.stand()
            except AutoMLError as error:  # no trial is given up for it
                logger.warning("delivering to MLflow: %s", error)


@dataclass
class _Term:
    """As the deliverer."""

    delivery: Delivery
    renewed: float
    """When (monotonic) the database was last heard to say so, at the latest."""


class ElectedDelivery:
    """Stands where a `Delivery` does: one while this sweep is elected, nothing while it is not."""

    def __init__(
        self,
        shared: Shared,
        tracking: TrackingConfig,
        start: Callable[[], Delivery],
    ) -> None:
        uri = resolve_uri(tracking).absolute
        store = uri.without_credentials
        is_file = uri.sqlite_path is not None
        self._store = f"{socket.gethostname()} {store}" if is_file else store
        self._shared, self._start = shared, start
        self._lock = threading.Lock()  # guards the one below
        self._term: _Term | None = None
        self.stand()

    def stand(self) -> None:
        """Be elected, or learn who is; called every few seconds. Raises AutoMLError."""
        begun = time.monotonic()
        with self._lock:
            try:
                elected = self._shared.elect(self._store)
            except AutoMLError:
                if self._term is not None and begun - self._term.renewed > GIVE_UP_SECONDS:
                    self._step_down()
                raise
            if not elected:
                self._step_down()
            elif self._term is None:
                self._term = _Term(self._start(), begun)
            else:
                self._term.renewed = begun

    def address(self) -> str | None:
        delivery = self._delivery
        return None if delivery is None else delivery.address()

    def wait_usable(self, timeout_seconds: float) -> None:
        """As `Delivery`; what another sweep delivers to is not looked at."""
        if (delivery := self._delivery) is not None:
            delivery.wait_usable(timeout_seconds)

    def lag(self) -> int:
        delivery = self._delivery
        return 0 if delivery is None else delivery.lag()

    def trouble(self) -> str | None:
        delivery = self._delivery
        return None if delivery is None else delivery.trouble()

    def drain(self, timeout_seconds: float) -> bool:
        """As `Delivery`; what another sweep is to deliver is left to it while trials run there."""
        deadline = time.monotonic() + SUCCESSION_SECONDS
        while self._delivery is None:
            if self._shared.standing.others_run or time.monotonic() >= deadline:
                return True
            time.sleep(0.5)
            with suppress(DatabaseAwayError):  # it may be back, and nothing is lost
                self.stand()
        delivery = self._delivery
        return delivery is None or delivery.drain(timeout_seconds)

    def stop(self) -> None:
        with self._lock:
            self._step_down()

    @property
    def _delivery(self) -> Delivery | None:
        term = self._term
        return None if term is None else term.delivery

    def _step_down(self) -> None:
        """The lock is held."""
        if self._term is not None:
            self._term.delivery.stop()
            self._term = None
