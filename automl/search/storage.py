"""The storage of a study: our journal in the study directory, or a database named by a URL.

The rest of `search/` uses Optuna's storage interface (`BaseStorage`) rather than `Study.ask` and
`Study.tell`. These two pass over all trials at every ask, write a trial in as many steps as it has
params, and copy each trial that they end. One `create_new_trial` stores a whole trial.

The journal has the format of Optuna's own journal backend, whose dashboard and stock backend can
read it; a line's checksum is one more key to them. Optuna's own backend loses a study to a torn
last line, since its next append glues onto it, and leaves a lock behind when it is killed within an
append. `record/append_only.py` says what our file does instead.

A line reaches the disk within 50 ms of the next `sync`. If the power fails before, the event log
still holds how trials ended, and a trial whose line is lost is asked for again with the same number
and seed. One line is one fact: a trial is created with all its params at once.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, RDBStorage, get_storage
from optuna.storages.journal import BaseJournalBackend, JournalStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from automl.config import StudyConfig
from automl.errors import AutoMLError, ConfigError, StorageError
from automl.record.append_only import AppendOnlyFile, file_error_text, is_line_damaged, seal_line
from automl.record.secrets import mask_urls
from automl.record.study_files import StudyFiles
from automl.record.texts import fit_line, parse_json

_CHUNK_BYTES = 64 * 1024


class LockedJournal(BaseJournalBackend):
    """The backend of a journal that one process writes at a time.

    Optuna's JournalStorage reads and appends under a lock of its own.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path`. Raises StudyInUseError, or StorageError if it fails."""
        self._path = path
        self._n_read = 0
        """The number of lines handed out so far, which end at byte `_read_bytes`."""
        self._read_bytes = 0
        self._file = AppendOnlyFile.open(path)
        try:
            # Optuna's own writers leave this lock behind when killed; the next one waits 30 s.
            Path(f"{path}.lock").unlink(missing_ok=True)
        except OSError as error:
            self._file.close()
            raise StorageError(file_error_text(path, "opened", error)) from error

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the lines that any process has appended since the last call."""
        assert log_number_from == self._n_read, "one storage reads a journal, line after line"
        n_bytes = _CHUNK_BYTES
        while data := self._file.read(n_bytes, self._read_bytes):
            lines, newline, _ = data.rpartition(b"\n")
            if not newline:
                if len(data) < n_bytes:
                    return  # a foreign writer has not finished its line
                n_bytes *= 2
                continue
            split = lines.split(b"\n")
            # Optuna counts a line before it applies it, which may raise: count line by line, too.
            for log, line in zip(self._parse(split), split, strict=True):
                self._n_read += 1
                self._read_bytes += len(line) + 1
                yield log

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write whole lines at once. Raises StorageError, then and at every later call."""
        lines = [seal_line(json.dumps(log, separators=(",", ":")).encode()) for log in logs]
        self._file.append(b"".join(line + b"\n" for line in lines))

    def sync(self) -> None:
        """Start a flush of all lines. Raises StorageError when an earlier flush failed."""
        self._file.check()
        self._file.flush_soon()

    def close(self) -> None:
        """Flush the file and close it; later calls raise.

        Raises StorageError when a flush failed and no call has raised the failure yet.
        """
        self._file.close()

    def damaged(self, number: int | None, cause: str) -> StorageError:
        """Return the error for a damaged line (None: the last one read) and refuse later calls."""
        return self._file.fail(
            f"{self._path}: line {number or self._n_read} is damaged ({cause}); restore the file "
            "from a copy, or begin a new study.name."
        )

    def _parse(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """Parse lines as JSON, all in one call: this halves the time to open a large study."""
        with contextlib.suppress(ValueError):
            logs: list[dict[str, Any]] = parse_json(b"[%b]" % b",".join(lines))
            if len(logs) == len(lines) and not any(map(is_line_damaged, lines)):
                return logs
        for number, line in enumerate(lines, self._n_read + 1):
            try:
                parse_json(line)
            except ValueError as error:
                raise self.damaged(number, str(error)) from error
            if is_line_damaged(line):
                raise self.damaged(number, "it is not what its checksum was made of")
        raise AssertionError("no line is damaged, but all together are")


@contextmanager
def damage_as_error(where: str) -> Iterator[None]:
    """Raise StorageError for errors while a study is read: the storage is damaged."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(
            f"{where} is damaged: it holds what no sweep writes ({type(error).__name__}: {error}); "
            "restore it from a copy, or begin a new study.name."
        ) from error


@dataclass(frozen=True)
class OpenStorage:
    """An open storage of a study; `close` closes its file or its connections."""

    storage: BaseStorage
    where: str
    """A path, or a URL without credentials, for messages."""
    sync: Callable[[], None]
    """Starts a flush of everything that was written."""
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

    def check_number(self, study_id: int, number: int, trial_id: int, name: str) -> None:
        """Raise StorageError if another program has added trials to the study in its database."""
        stored = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
        if stored != trial_id:
            raise StorageError(
                f"study.name={name}: another program adds trials to this study in "
                f"{self.where}; stop it, then resume the study."
            )


def open_storage(url: str | None, directory: Path) -> OpenStorage:
    """Open the database at `url`, or the journal in the study directory when it is None.

    Raises ConfigError for an unusable URL, StudyInUseError or StorageError for the journal.
    """
    silence_optuna()
    return _open_journal(StudyFiles(directory).journal) if url is None else _open_database(url)


def count_trials(config: StudyConfig, directory: Path) -> int:
    """Return the number of trials that a study has asked for. Raises the errors of
    `open_storage`."""
    opened = open_storage(config.storage, directory)
    try:
        with opened.guard():
            studies = {study.study_name: study for study in opened.storage.get_all_studies()}
            study = studies.get(str(config.name)) or next(iter(studies.values()), None)
            return 0 if study is None else opened.storage.get_n_trials(study._study_id)
    finally:
        opened.close()


NOT_SUGGESTED = "automl:not_suggested"
"""System attribute of a trial: its params that the objective never asked for."""


REQUEST = "automl:request"
"""System attribute of a trial that a user enqueued while a sweep ran: which request asked for
it."""
OUTSIDE_SPACE = "automl:outside"
"""System attribute of a trial that has values outside the space: their names."""
FIXED_PARAMS = "fixed_params"
"""System attribute in which Optuna keeps the params of a trial that a user enqueued."""
IMPORTED = "automl:imported"
"""System attribute of a trial that ended in the study with whose trials this one began: its number
there."""


def as_asked(trial: FrozenTrial) -> FrozenTrial:
    """Return `trial` without params that were drawn for it and that it never asked for."""
    unasked = trial.system_attrs.get(NOT_SUGGESTED)
    if not unasked:
        return trial
    trial = copy.copy(trial)
    trial.params = {n: value for n, value in trial.params.items() if n not in unasked}
    trial.distributions = {n: d for n, d in trial.distributions.items() if n not in unasked}
    return trial


ShowTrials: TypeAlias = Callable[[list[FrozenTrial]], list[FrozenTrial]]
"""Returns a study's trials as its sampler sees them."""


class _AskedParamsView:
    """A view of a storage for a sampler that proposes a trial which does not exist yet.

    Trials have the params that they asked for (`as_asked`). TPE writes the params that it drew into
    the trial, for other processes that ask at the same time. This view drops them, since the trial
    is written with all its params at once, or not at all.
    """

    def __init__(self, storage: BaseStorage, show: ShowTrials) -> None:
        self._storage, self._show = storage, show

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[OptunaState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the trials of a study with the params that they asked for, but for those outside
        the space."""
        trials = self._storage.get_all_trials(study_id, deepcopy=deepcopy, states=states)
        kept = (trial for trial in trials if OUTSIDE_SPACE not in trial.system_attrs)
        shown = self._show([as_asked(trial) for trial in kept])
        return [trial for trial in shown if states is None or trial.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: object) -> None:
        """Drop the attribute, as the class says."""


def _as_they_are(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    return trials


def load_optuna_study(
    sampler: BaseSampler, storage: BaseStorage, name: str, show: ShowTrials = _as_they_are
) -> optuna.Study:
    """Return a new Optuna study for a sampler to read, its trials as `show` gives them.

    It is made anew for each proposal, since only Optuna's own `ask` and `tell` empty its cache of
    the trials.
    """
    readable = cast(BaseStorage, _AskedParamsView(storage, show))
    return optuna.load_study(study_name=name, storage=readable, sampler=sampler)


def silence_optuna() -> None:
    """Hide Optuna's log lines and warnings from users, who can do nothing about them.

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
    except Exception as error:  # a wrong key or value in a line without checksum raises anything
        journal.close()
        raise journal.damaged(None, f"{type(error).__name__}: {error}") from error
    return OpenStorage(storage, os.path.relpath(path), journal.sync, journal.close)


_LOCKED_SECONDS = 60.0
"""Longest wait for an SQLite file that another process locks, as a copy of it may for seconds."""


def _open_database(url: str) -> OpenStorage:
    # By default SQLite gives up after 5 s in which another process locks the file.
    wait = {"connect_args": {"timeout": _LOCKED_SECONDS}} if url.startswith("sqlite") else None
    try:
        database = RDBStorage(url, engine_kwargs=wait)
        # Wrapped as Optuna itself wraps it, so that finished trials are read only once.
        storage = get_storage(database)
    except Exception as error:
        # Drivers and SQLAlchemy raise errors of any type here, with the URL in them.
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
        """Return at once: each write is a transaction of its own."""

    return OpenStorage(storage, mask_urls(url), sync, close)
