"""Where a study is kept: our journal in the study directory, or a database named by a URL.

The rest of `search/` uses Optuna's storage interface (`BaseStorage`) rather than `Study.ask` and
`Study.tell`: those pass over all trials at every ask, write a trial in as many steps as it has
params, and copy each trial told. One `create_new_trial` holds a whole trial.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalStorage

from automl.errors import AutoMLError, ConfigError, StorageError
from automl.record.credentials import mask_urls
from automl.record.files import StudyFiles
from automl.record.texts import fit_line
from automl.search.journal import LockedJournal


@contextmanager
def intact(where: str) -> Iterator[None]:
    """What cannot be made sense of while a study is read is damage, not our mistake to show."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(
            f"{where} is damaged: it holds what no sweep writes ({type(error).__name__}: {error}); "
            "restore it from a copy, or begin a new study.name."
        ) from error


@dataclass(frozen=True)
class OpenStorage:
    """An open storage; `close` gives back its file or its connections."""

    storage: BaseStorage
    where: str
    """For messages: a path, or a URL without credentials."""
    sync: Callable[[], None]
    """Returns when all that was written is on disk."""
    close: Callable[[], None]

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn Optuna's errors of a lost database into StorageError."""
        try:
            yield
        except optuna.exceptions.StorageInternalError as error:
            cause = fit_line(str(error.__cause__ or error)).rstrip(".")
            raise StorageError(
                f"study.storage={self.where}: the database does not answer ({cause}); mend "
                "that, then resume the study."
            ) from error


def open_storage(url: str | None, directory: Path) -> OpenStorage:
    """Open the database at `url`, or the journal in the study directory when it is None.

    Raises ConfigError for an unusable URL, StudyInUseError or StorageError for the journal.
    """
    silence_optuna()
    return _open_journal(StudyFiles(directory).journal) if url is None else _open_database(url)


class _DropsNotes:
    """A storage that a sampler reads while a trial is proposed that does not exist yet.

    TPE notes the params it drew on the trial, for other processes that ask at the same time; here
    the trial is written with its params at once, or not at all.
    """

    def __init__(self, storage: BaseStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def set_trial_system_attr(self, trial_id: int, key: str, value: object) -> None:
        """Not written; see the class."""


def study_as_it_stands(sampler: BaseSampler, storage: BaseStorage, name: str) -> optuna.Study:
    """Optuna's own object of a study, for a sampler to read. Made anew for each proposal: Optuna's
    cache of the trials is emptied by its own `ask` and `tell` only."""
    readable = cast(BaseStorage, _DropsNotes(storage))
    return optuna.load_study(study_name=name, storage=readable, sampler=sampler)


def silence_optuna() -> None:
    """Keep Optuna's lines and warnings from users, to whom they say nothing they can act on.

    Its log lines repeat ours. QMC and TPE's `group` are marked experimental; some of TPE's
    arguments are announced to go in Optuna 6, which pyproject.toml excludes.
    """
    optuna.logging.disable_default_handler()
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    goes_in_6 = r"`(prior_weight|consider_magic_clip|consider_endpoints)`"
    warnings.filterwarnings("ignore", message=goes_in_6, category=FutureWarning)


def _open_journal(path: Path) -> OpenStorage:
    journal = LockedJournal(path)
    try:
        storage = JournalStorage(journal)
    except AutoMLError:
        journal.close()
        raise
    except Exception as error:  # whatever comes of a wrong key or value in a line without checksum
        journal.close()
        raise journal.damaged(None, f"{type(error).__name__}: {error}") from error
    return OpenStorage(storage, os.path.relpath(path), journal.sync, journal.close)


def _open_database(url: str) -> OpenStorage:
    try:
        database = RDBStorage(url)
        # Wrapped as Optuna itself wraps it, so that finished trials are read only once.
        storage = get_storage(database)
    except Exception as error:
        # Drivers and SQLAlchemy raise whatever they like here, with the URL in it.
        cause, where = fit_line(str(error).replace(url, "it")).rstrip("."), mask_urls(url)
        raise ConfigError(
            f"study.storage={where}: cannot be used ({cause}). Give a URL such as "
            "postgresql://user@host/name (pip install psycopg2-binary) or sqlite:///file.db, or "
            "leave it out: the study is then kept in its own directory."
        ) from error

    def close() -> None:
        storage.remove_session()
        database.engine.dispose()

    def sync() -> None:
        """Nothing to do: each write is a transaction of its own."""

    return OpenStorage(storage, mask_urls(url), sync, close)
