"""Reads a study that somebody made with Optuna, so that a study of ours can begin with its trials.

The source is a database (SQLite, PostgreSQL and whatever else SQLAlchemy opens) or a journal file,
written by Optuna 2.10 or later. Nothing is ever written to it: an SQLite file is copied, and an
older schema is upgraded in the copy.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages.journal import BaseJournalBackend, JournalStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from automl.errors import ConfigError
from automl.record.texts import counted, fit_line, parse_json
from automl.search.domains import ChoiceDomain, Domain, RangeDomain
from automl.search.optuna_address import ADDRESS_FORMS, SQLITE, OptunaSource
from automl.search.param_suggestions import domain_of
from automl.search.storage import silence_optuna
from automl.trial import Direction


@dataclass(frozen=True)
class OptunaStudy:
    """A study of Optuna's, as it was read."""

    name: str
    where: str
    directions: tuple[Direction, ...]
    metric_names: tuple[str, ...]
    """The names that its author gave the values; empty: none."""
    trials: tuple[FrozenTrial, ...]

    @property
    def counts(self) -> str:
        """Return how many trials have which state, for people: `10 complete, 1 pruned`."""
        by_state = {state: sum(t.state is state for t in self.trials) for state in TrialState}
        return ", ".join(f"{n:,} {state.name.lower()}" for state, n in by_state.items() if n)

    def space_entries(self) -> dict[str, Any]:
        """Return an entry of the search space for each param of the trials.

        A range spans the ranges of all trials. A param that only some trials have gets the
        condition that tells these trials from the others.

        Raises ConfigError for a param without such a condition, or with values that no entry has.
        """
        shown = [trial for trial in self.trials if trial.distributions]
        domains = self._domains(shown)
        return {
            name: domain.plain() | self._condition(name, shown, domains)
            for name, domain in domains.items()
        }

    def _domains(self, shown: Sequence[FrozenTrial]) -> dict[str, Domain]:
        domains: dict[str, Domain] = {}
        for trial in shown:
            for name, known in trial.distributions.items():
                domain = self._domain(name, known)
                domains[name] = _union(domains.get(name, domain), domain)
        return domains

    def _domain(self, name: str, known: BaseDistribution) -> Domain:
        if isinstance(known, CategoricalDistribution):
            odd = next((c for c in known.choices if not _is_plain(c)), None)
            if odd is not None:
                raise ConfigError(
                    f"from={self.where}: param {name} of study {self.name} has the choice "
                    f"{odd!r:.60}; choices are numbers, texts, true and false. Write the entry "
                    f"yourself: space.{name}=…"
                )
        return domain_of(known)

    def _condition(
        self, name: str, shown: Sequence[FrozenTrial], domains: Mapping[str, Domain]
    ) -> dict[str, Any]:
        """Return the part `when` of an entry; empty for a param that all whole trials have."""
        ended = [trial for trial in shown if trial.state is TrialState.COMPLETE] or list(shown)
        having = [trial for trial in ended if name in trial.params]
        others = [trial for trial in ended if name not in trial.params]
        if not others:
            return {}
        for parent, domain in domains.items():
            if parent == name or not isinstance(domain, ChoiceDomain):
                continue
            with_it = {trial.params.get(parent) for trial in having}
            without = {trial.params.get(parent) for trial in others}
            if with_it and not with_it & without and None not in with_it:
                return {"when": {parent: [v for v in domain.values if v in with_it]}}
        raise ConfigError(
            f"from={self.where}: param {name} is in {len(having)} of {counted(len(ended), 'trial')}"
            f" of study {self.name}, and no choice says in which. Write its entry with its "
            f"condition, or without: space.{name}=…"
        )


def _union(one: Domain, other: Domain) -> Domain:
    """Return a domain with the values of both; the later one where their kinds differ."""
    if isinstance(one, ChoiceDomain) and isinstance(other, ChoiceDomain):
        return ChoiceDomain((*one.values, *(v for v in other.values if not one.contains(v))))
    if isinstance(one, RangeDomain) and isinstance(other, RangeDomain):
        step = other.step if other.step == one.step else None
        low, high = min(one.low, other.low), max(one.high, other.high)
        return RangeDomain(low, high, other.log and low > 0, step)
    return other


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


# --- reading --------------------------------------------------------------------------------------


def read_optuna_study(source: OptunaSource) -> OptunaStudy:
    """Read a study with all its trials. Raises ConfigError."""
    silence_optuna()
    with _open(source) as storage:
        studies = {study.study_name: study for study in storage.get_all_studies()}
        name = _choose_name(source, list(studies))
        study_id = studies[name]._study_id
        trials = storage.get_all_trials(study_id, deepcopy=False)
        directions = tuple(map(_direction, storage.get_study_directions(study_id)))
        given = storage.get_study_system_attrs(study_id).get("study:metric_names") or ()
    return OptunaStudy(name, source.where, directions, tuple(given), tuple(trials))


def _choose_name(source: OptunaSource, names: Sequence[str]) -> str:
    if source.name is None and len(names) == 1:
        return names[0]
    if source.name in names:
        return str(source.name)
    listed = ", ".join(sorted(names)) or "none"
    if source.name is None:
        raise ConfigError(
            f"from={source.where}: it holds {counted(len(names), 'study', 'studies')} ({listed}). "
            f"Name one: from={source.where}:NAME"
        )
    raise ConfigError(
        f"from={source.where}:{source.name}: there is no study of this name; studies: {listed}."
    )


def _direction(direction: StudyDirection) -> Direction:
    return Direction.maximize if direction is StudyDirection.MAXIMIZE else Direction.minimize


@contextmanager
def _open(source: OptunaSource) -> Iterator[BaseStorage]:
    """Open the storage for reading. Raises ConfigError."""
    try:
        if source.storage.startswith(SQLITE):
            file = Path(source.storage.removeprefix(SQLITE))
            with (
                _copied_sqlite(file) as url,
                _open_database(url, may_upgrade=True) as storage,
            ):
                yield storage
        elif "://" in source.storage:
            with _open_database(source.storage, may_upgrade=False) as storage:
                yield storage
        else:
            yield JournalStorage(_JournalReader(Path(source.storage)))
    except ConfigError:
        raise
    except Exception as error:
        # SQLAlchemy, its drivers, alembic and Optuna raise errors of any type here.
        told = str(error.__cause__ or error).replace(source.storage, "it")
        cause = fit_line(told.partition("\n")[0]).rstrip(".")
        raise ConfigError(
            f"from={source.where}: cannot be read as a storage of Optuna's ({cause}). Give "
            f"{ADDRESS_FORMS}."
        ) from error


@contextmanager
def _copied_sqlite(file: Path) -> Iterator[str]:
    """Yield the URL of a copy of an SQLite file. Raises ConfigError, OSError and sqlite3.Error."""
    if not file.is_file():
        raise ConfigError(f"from={SQLITE}{file}: there is no such file. Give {ADDRESS_FORMS}.")
    with tempfile.TemporaryDirectory(prefix="automl-optuna-") as folder:
        copy = Path(folder) / "copy.db"
        uri = f"{file.resolve().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True)) as theirs,
            closing(sqlite3.connect(copy)) as ours,
        ):
            theirs.backup(ours)
        yield f"{SQLITE}{copy}"


_UPGRADE = """\
import sys
from optuna.storages import RDBStorage
RDBStorage(sys.argv[1], skip_compatibility_check=True, skip_table_creation=True).upgrade()
"""


def _upgrade(url: str) -> None:
    """Bring a database to the schema of this Optuna. Raises ValueError.

    In a process of its own, since alembic sets up logging anew and so mutes what logs here.
    """
    command = [sys.executable, "-c", _UPGRADE, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ValueError(lines[-1] if lines else f"exit code {done.returncode}")


@contextmanager
def _open_database(url: str, *, may_upgrade: bool) -> Iterator[BaseStorage]:
    storage = RDBStorage(url, skip_compatibility_check=may_upgrade, skip_table_creation=True)
    try:
        if may_upgrade and storage.get_current_version() != storage.get_head_version():
            _upgrade(url)
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


class _JournalReader(BaseJournalBackend):
    """Reads a journal file of Optuna's, whose writer may be at work, and never writes."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(f"from={path}: there is no such file. Give {ADDRESS_FORMS}.")
        self._lines = path.read_bytes().split(b"\n")[:-1]  # the last one may be half written

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the lines from a number on."""
        for line in self._lines[log_number_from:]:
            yield parse_json(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Raise, since the journal is another's."""
        raise AssertionError("an Optuna study is only read")
