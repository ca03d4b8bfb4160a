"""A study that several sweeps work on together, kept in memory for the sampler and the pruner.

The database has the trials and their events (`record/sharing`). This module asks the database for
trials and copies them into memory: this sweep's own trials at once, trials of other sweeps a second
or two later. It makes no connections itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, InMemoryStorage

from automl.config import StudyConfig
from automl.errors import StorageError, StudyInUseError
from automl.record.sharing.shared_record import SharedRecord, TrialClaim
from automl.record.sharing.study_fetch import fetch_study
from automl.record.sharing.study_tables import StoredTrial
from automl.search.edited_space import edited_space
from automl.search.optuna_trials import name_metrics
from automl.search.search_space import EnqueuedPoint
from automl.search.storage import OpenStorage, silence_optuna
from automl.search.study import AskedTrial, Study
from automl.search.study_identity import (
    STUDY_ATTRIBUTE,
    StudyIdentity,
    StudyRules,
    create_study,
    find_or_create_study,
    refuse_identity_changes,
)
from automl.trial import (
    Event,
    MetricsReported,
    Params,
    StudyEdited,
    TrialEvent,
    TrialOutcome,
    TrialTagged,
    Verdict,
)


@dataclass(frozen=True)
class SharedStorage(OpenStorage):
    """A storage in memory that holds what this sweep knows of the shared study."""

    shared: SharedRecord
    stored_config: str
    """The config as YAML, from which other machines go on."""
    writing: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    """Held while a trial is written: news of its end elsewhere may come while it reports here."""


def open_shared_storage(shared: SharedRecord, stored_config: str) -> SharedStorage:
    """Open a storage for `SharedStudy.open`; closing it does not close `shared`."""
    silence_optuna()

    def do_nothing() -> None:
        """Return at once: a storage in memory has nothing to flush or close."""

    storage: BaseStorage = InMemoryStorage()
    return SharedStorage(storage, shared.where, do_nothing, do_nothing, shared, stored_config)


def refuse_changed_study(config: StudyConfig, rules: StudyRules) -> None:
    """Raise ConfigError if the study was begun with other settings or is not in the database.

    Raises StudyInUseError while trials of the study run anywhere.
    """
    assert config.name is not None
    fetched = fetch_study(config)
    identity = replace(rules.identity, edited_space=edited_space(fetched.edits))
    refuse_identity_changes(config.name, identity.edited(fetched.identity), identity)
    if fetched.at_work:
        raise StudyInUseError(
            f"study.name={config.name}: its sweeps are at work ({fetched.where_at_work}); wait for "
            "them, or stop them."
        )


class SharedStudy(Study):
    """A study whose trials other sweeps run, too.

    The main thread alone uses it, except for `report`, which any thread may call.
    """

    follow_edit: Callable[[StudyEdited], None]
    """Has this sweep follow an edit of the study; set before the sweep asks for a trial."""

    @property
    def n_edits(self) -> int:
        """The number of edits that this sweep follows."""
        return len(self._rules.edits)

    def ask(self) -> AskedTrial | None:
        """Return a trial to carry out, with its lease; None: there is none now.

        It is one that no sweep holds any longer, or the next new one. Raises StorageError.
        """
        number = self._shared.take_over_trial()
        self.add_news()
        if number is not None:
            return AskedTrial(number, self.params(number))
        while True:
            number = self.n_asked
            params = self._proposer.propose(number - len(self.by_request))
            if params is None:
                return None
            claim = self._shared.claim(number, params, n_edits=self.n_edits)
            if claim is TrialClaim.MADE:
                return self._add(number, params)
            # If another sweep has this number, the next proposal must know its params.
            if claim is TrialClaim.NONE or not self.hear():
                return None

    def enqueue(self, points: Sequence[EnqueuedPoint]) -> list[AskedTrial]:
        """Make the points trials of this sweep, but for those that other sweeps make.

        A point that has no trial then could not be recorded now. Raises ConfigError, StorageError.
        """
        trials: list[AskedTrial] = []
        claim = TrialClaim.TAKEN
        while claim is TrialClaim.MADE or (claim is TrialClaim.TAKEN and self.hear()):
            left = [point for point in points if point.request not in self.by_request]
            for point in left:
                point.check(self._space)
            if not left:
                break
            number, params = self.n_asked, self._complete(self.n_asked, left[0])
            claim = self._shared.claim(
                number, params, request=left[0].request, n_edits=self.n_edits
            )
            if claim is TrialClaim.MADE:
                trials.append(self._add(number, params, left[0]))
        return trials

    def tell(self, number: int, outcome: TrialOutcome, device: str | None = None) -> None:
        """End the trial as `Study.tell` does, unless its end elsewhere is known already."""
        with self._writing:
            if self._standings.is_running(number):
                super().tell(number, outcome, device)

    def report(self, reports: Sequence[MetricsReported]) -> Mapping[int, Verdict]:
        """Record reports as `Study.report` does, except for trials whose end is known already."""
        with self._writing:
            return super().report(reports)

    def tag(self, tagged: TrialTagged) -> None:
        """Tag the trial as `Study.tag` does, unless its end elsewhere is known already."""
        with self._writing:
            if self._standings.is_running(tagged.trial):
                super().tag(tagged)

    def hear(self) -> bool:
        """Read at once what other sweeps did, and return whether the database answers."""
        if not self._shared.pull():
            return False
        self.add_news()
        return True

    def add_news(self) -> None:
        """Add what other sweeps did since the last call. Raises StorageError, and ConfigError for
        an edit that this sweep cannot follow."""
        for news in self._shared.peer_news():
            events = [written.event for written in news.events]
            edits = deque(event for event in events if isinstance(event, StudyEdited))
            for trial in news.trials:
                while edits and edits[0].n_trials <= trial.number:
                    self.follow_edit(edits.popleft())
                self._take_trials([trial])
            for edit in edits:
                self.follow_edit(edit)
            self._take_events(events)

    def others_run(self, first: int) -> bool:
        """Return whether other sweeps run trials from number `first` on, as far as is known."""
        return any(number >= first for number in self.of_others())

    def of_others(self) -> Iterator[int]:
        """Yield the trials that have not ended and that this sweep does not hold."""
        holds = self._shared.log.holds
        return (number for number in [*self._standings.running] if not holds(number))

    # --- inside ---

    @property
    def _shared(self) -> SharedRecord:
        assert isinstance(self._opened, SharedStorage), "`open` got a shared storage"
        return self._opened.shared

    @property
    def _writing(self) -> threading.RLock:
        assert isinstance(self._opened, SharedStorage), "`open` got a shared storage"
        return self._opened.writing

    def _join(self, config: StudyConfig, identity: StudyIdentity, directory: Path) -> None:
        assert isinstance(self._opened, SharedStorage), "`open` got a shared storage"
        shared = self._shared
        self._find_or_create(config, identity)
        if shared.stored_study is None:
            attribute = self._storage.get_study_user_attrs(self._study_id)[STUDY_ATTRIBUTE]
            config_text = self._opened.stored_config
            if shared.register(self.uuid, attribute["identity"], config_text).uuid != self.uuid:
                self._storage.delete_study(self._study_id)  # another sweep was first
                self._find_or_create(config, identity)
        name_metrics(self._storage, self.stored_name, config.metrics)
        trials, events = shared.begin()
        self._take_trials(trials)
        self._take_events(events)

    def _find_or_create(self, config: StudyConfig, identity: StudyIdentity) -> None:
        """Make the study in memory, as the database has it, if it does.

        Raises ConfigError when it was begun with other settings.
        """
        stored = self._shared.stored_study
        if stored is not None:
            attribute = {"uuid": stored.uuid, "identity": stored.identity}
            create_study(self._storage, self.stored_name, config.metrics, attribute)
        self._study_id, self.uuid = find_or_create_study(
            self._storage, self.stored_name, config.metrics, identity, self._opened.where
        )

    def _take_trials(self, trials: Iterable[StoredTrial]) -> None:
        for number, params, request in trials:
            if number < self.n_asked:
                continue
            if number > self.n_asked:
                raise StorageError(
                    f"study.storage={self._opened.where}: trial {self.n_asked} of study "
                    f"{self.name} is missing there; restore the database from a copy."
                )
            known = self._cast(number, params)
            self._add(number, known, None if request is None else EnqueuedPoint(known, request))

    def _cast(self, number: int, params: Mapping[str, Any]) -> Params:
        return {name: params[name] for name in self._history.at(number).names if name in params}

    def _take_events(self, events: Iterable[Event]) -> None:
        for event in events:
            if not isinstance(event, TrialEvent) or not self._standings.is_running(event.trial):
                continue
            if isinstance(event, MetricsReported):
                self.report([event])
            elif isinstance(event, TrialOutcome) and event.state.is_final:
                self.tell(event.trial, event)
