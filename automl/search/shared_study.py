"""A study that several sweeps work on together: asked for in the database, heard of from there.

The database has the trials and their events (`record/sharing`); here they are a study in memory,
for the sampler and the pruner: this sweep's own at once, those of others a second or two later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, InMemoryStorage

from automl.config import StudyConfig
from automl.errors import StorageError, StudyInUseError
from automl.record.sharing.shared_record import SharedRecord, TrialClaim
from automl.record.sharing.study_fetch import fetch_study
from automl.search.optuna_trials import name_metric
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
    TrialEvent,
    TrialOutcome,
    TrialTagged,
    Verdict,
)


@dataclass(frozen=True)
class SharedStorage(OpenStorage):
    """What this sweep knows of the study, in memory."""

    shared: SharedRecord
    stored_config: str
    """What other machines go on from."""
    writing: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)
    """Held while a trial is written: one that reports here may be heard to have ended elsewhere."""


def open_shared_storage(shared: SharedRecord, stored_config: str) -> SharedStorage:
    """For `SharedStudy.open`; closing it is not closing `shared`."""
    silence_optuna()

    def nothing() -> None:
        """There is nothing to do for what is in memory."""

    storage: BaseStorage = InMemoryStorage()
    return SharedStorage(storage, shared.where, nothing, nothing, shared, stored_config)


def refuse_changed_study(config: StudyConfig, rules: StudyRules) -> None:
    """Raises ConfigError where the study was begun with other settings, or the database has no such
    study; StudyInUseError while trials of it run anywhere."""
    assert config.name is not None
    found = fetch_study(config)
    refuse_identity_changes(config.name, found.identity, rules.identity)
    if found.at_work:
        raise StudyInUseError(
            f"study.name={config.name}: its sweeps are at work ({found.where_at_work}); wait for "
            "them, or stop them."
        )


class SharedStudy(Study):
    """As `Study`, of which other sweeps have trials too. For the main thread, but for reports."""

    def ask(self) -> AskedTrial | None:
        """A trial that nobody holds any more, or the next new one, with its lease; None: there is
        none now. Raises StorageError."""
        number = self._shared.take_over_trial()
        self.hear()
        if number is not None:
            return AskedTrial(number, self.params(number))
        while True:
            number = self.n_asked
            params = self._proposer.propose(number)
            if params is None:
                return None
            claim = self._shared.claim(number, params)
            if claim is TrialClaim.MADE:
                return self._add(number, params)
            # Where somebody has this number, what he drew is to be known to the next one.
            if claim is TrialClaim.NONE or not self._shared.pull():
                return None
            self.hear()

    def tell(self, number: int, outcome: TrialOutcome, device: str | None = None) -> None:
        """As `Study.tell`; nothing for a trial whose end was heard of first."""
        with self._writing:
            if self._standings.is_running(number):
                super().tell(number, outcome, device)

    def report(self, reports: Sequence[MetricsReported]) -> Mapping[int, Verdict]:
        """As `Study.report`; nothing for a trial whose end was heard of first."""
        with self._writing:
            return super().report(reports)

    def tag(self, tagged: TrialTagged) -> None:
        """As `Study.tag`; nothing for a trial whose end was heard of first."""
        with self._writing:
            if self._standings.is_running(tagged.trial):
                super().tag(tagged)

    def hear(self) -> None:
        """Take in what others did. Raises StorageError."""
        for heard in self._shared.peer_news():
            self._take_trials(heard.trials)
            self._take_events(taken.event for taken in heard.events)

    def others_run(self, first: int) -> bool:
        """Whether trials from that number on run that are not this sweep's, as far as was heard."""
        holds = self._shared.log.holds
        return any(n >= first and not holds(n) for n in self._standings.running)

    # --- inside ---

    @property
    def _shared(self) -> SharedRecord:
        assert isinstance(self._opened, SharedStorage), "see `open_shared`"
        return self._opened.shared

    @property
    def _writing(self) -> threading.RLock:
        assert isinstance(self._opened, SharedStorage), "see `open_shared`"
        return self._opened.writing

    def _join(self, config: StudyConfig, identity: StudyIdentity, directory: Path) -> None:
        assert isinstance(self._opened, SharedStorage), "see `open_shared`"
        shared = self._shared
        self._find_or_create(config, identity)
        if shared.found is None:
            kept = self._storage.get_study_user_attrs(self._study_id)[STUDY_ATTRIBUTE]
            stored = self._opened.stored_config
            if shared.register(self.uuid, kept["identity"], stored).uuid != self.uuid:
                self._storage.delete_study(self._study_id)  # somebody else was first
                self._find_or_create(config, identity)
        name_metric(self._storage, self.stored_name, self._metric)
        trials, events = shared.begin()
        self._take_trials(trials)
        self._take_events(events)

    def _find_or_create(self, config: StudyConfig, identity: StudyIdentity) -> None:
        """In memory: as the database has it, if it does. Raises ConfigError for other settings."""
        found = self._shared.found
        if found is not None:
            kept = {"uuid": found.uuid, "identity": found.identity}
            create_study(self._storage, self.stored_name, config.towards, kept)
        self._study_id, self.uuid = find_or_create_study(
            self._storage, self.stored_name, config.towards, identity, self._opened.where
        )

    def _take_trials(self, trials: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        for number, params in trials:
            if number < self.n_asked:
                continue
            if number > self.n_asked:
                raise StorageError(
                    f"study.storage={self._opened.where}: trial {self.n_asked} of study "
                    f"{self.name} is missing there; restore the database from a copy."
                )
            self._add(number, self._cast(params))

    def _cast(self, params: Mapping[str, Any]) -> Params:
        return {name: params[name] for name in self._space.names if name in params}

    def _take_events(self, events: Iterable[Event]) -> None:
        for event in events:
            if not isinstance(event, TrialEvent) or not self._standings.is_running(event.trial):
                continue
            if isinstance(event, MetricsReported):
                self.report([event])
            elif isinstance(event, TrialOutcome) and event.state.is_final:
                self.tell(event.trial, event)
