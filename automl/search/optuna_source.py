"""Reads a study that somebody made with Optuna, so that a study of ours can begin with its trials.

The source is a database (SQLite, PostgreSQL and whatever else SQLAlchemy opens) or a journal file,
written by Optuna 2.10 or later. Nothing is ever written to it: an SQLite file is copied, and an
older schema is upgraded in the copy.
"""

from __future__ import annotations

import copy
import math
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

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
from automl.trial import Direction, Params


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

    @property
    def n_constrained(self) -> int:
        """The number of trials that have constraints of Optuna's."""
        return sum(bool(trial.constraints) for trial in self.trials)

    def ranking(self) -> list[tuple[Params, float]]:
        """Return the params and values of the whole trials, the best first; of several values
        nothing, since they have no order."""
        if len(self.directions) > 1:
            return []
        sign = -1 if self.directions[0] is Direction.maximize else 1
        whole = [trial for trial in self.trials if trial.state is TrialState.COMPLETE]
        valued = [(dict(trial.params), float(trial.values[0])) for trial in whole if trial.values]
        finite = [(params, value) for params, value in valued if math.isfinite(value)]
        return sorted(finite, key=lambda trial: sign * trial[1])

    def space_entries(self, *, needs_conditions: bool = True) -> dict[str, Any]:
        """Return an entry of the search space for each param of the trials.

        A range spans the ranges of all trials. A param that only some trials have gets the
        condition that tells these trials from the others.

        Raises ConfigError for a param without such a condition, unless none is needed, or with
        values that no entry has.
        """
        shown = [trial for trial in self.trials if trial.distributions]
        domains = self._domains(shown)
        return {
            name: domain.plain() | self._condition(name, shown, domains, needed=needs_conditions)
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
        self,
        name: str,
        shown: Sequence[FrozenTrial],
        domains: Mapping[str, Domain],
        *,
        needed: bool,
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
        if not needed:
            return {}
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
    """Read a study with all its trials. Raises ConfigError.

    What reads an unchanged file twice, for the settings and for the trials, reads it once: 10,000
    trials take seconds. After the second time nothing of it is kept.
    """
    stamps = _stamps(source)
    if stamps is None:
        return _read(source)
    study = _read_before.pop((source, stamps), None)
    if study is None:
        _read_before.clear()  # another file's, or that of an earlier time
        study = _read_before[source, stamps] = _read(source)
    return study


_Stamps: TypeAlias = tuple[tuple[int, int], ...]
_read_before: dict[tuple[OptunaSource, _Stamps], OptunaStudy] = {}
"""The study that was read once so far, if there is one."""


def _stamps(source: OptunaSource) -> _Stamps | None:
    """Return times of change and sizes of the file and of SQLite's log beside it; None: the study
    is in no file, or there is none."""
    path = source.storage.removeprefix(SQLITE)
    if "://" in path or not Path(path).is_file():
        return None
    files = [file for file in (Path(path), Path(f"{path}-wal")) if file.is_file()]
    return tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files)


def _read(source: OptunaSource) -> OptunaStudy:
    silence_optuna()
    with _open(source) as storage:
        studies = {study.study_name: study for study in storage.get_all_studies()}
        name = _choose_name(source, list(studies))
        study_id = studies[name]._study_id
        trials = storage.get_all_trials(study_id, deepcopy=False)
        directions = tuple(map(_direction, storage.get_study_directions(study_id)))
        given = storage.get_study_system_attrs(study_id).get("study:metric_names") or ()
    if len(directions) == 1:
        trials = [_with_best_value(trial, directions[0]) for trial in trials]
    return OptunaStudy(name, source.where, directions, tuple(given), tuple(trials))


def _with_best_value(trial: FrozenTrial, direction: Direction) -> FrozenTrial:
    """Return a pruned trial with the best value that it reported, as in our studies; Optuna's own
    value of it is the last."""
    reported = [v for v in trial.intermediate_values.values() if math.isfinite(v)]
    if trial.state is not TrialState.PRUNED or not reported:
        return trial
    shown = copy.copy(trial)
    shown.values = [max(reported) if direction is Direction.maximize else min(reported)]
    return shown


def _choose_name(source: OptunaSource, names: Sequence[str]) -> str:
    if source.name is None and len(names) == 1:
        return names[0]
    if source.name in names:
        return str(source.name)
    listed = ", ".join(sorted(names)) or "none"
    if source.name is None:
        raise ConfigError(
            f"{source.given}: it holds {counted(len(names), 'study', 'studies')} ({listed}). "
            f"Name one: {source.given}:NAME"
        )
    raise ConfigError(
        f"{source.given}:{source.name}: there is no study of this name; studies: {listed}."
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
                _copied_sqlite(file, source) as url,
                _open_database(url, may_upgrade=True) as storage,
            ):
                yield storage
        elif "://" in source.storage:
            with _open_database(_with_driver(source.storage), may_upgrade=False) as storage:
                yield storage
        else:
            yield JournalStorage(_JournalReader(source))
    except ConfigError:
        raise
    except Exception as error:
        # SQLAlchemy, its drivers, alembic and Optuna raise errors of any type here.
        told = str(error.__cause__ or error).replace(source.storage, "it")
        cause = fit_line(told.partition("\n")[0]).rstrip(".")
        raise ConfigError(
            f"{source.given}: cannot be read as a storage of Optuna's ({cause}). Give "
            f"{ADDRESS_FORMS}."
        ) from error


def _with_driver(url: str) -> str:
    """Return a database's URL, that of PostgreSQL with the driver that is installed here."""
    plain = "postgresql://"
    if not url.startswith(plain) or find_spec("psycopg2") is not None:
        return url
    return url.replace(plain, "postgresql+psycopg://", 1)


@contextmanager
def _copied_sqlite(file: Path, source: OptunaSource) -> Iterator[str]:
    """Yield the URL of a copy of an SQLite file. Raises ConfigError, OSError and sqlite3.Error."""
    if not file.is_file():
        raise ConfigError(f"{source.given}: there is no such file. Give {ADDRESS_FORMS}.")
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

    def __init__(self, source: OptunaSource) -> None:
        path = Path(source.storage)
        if not path.is_file():
            raise ConfigError(f"{source.given}: there is no such file. Give {ADDRESS_FORMS}.")
        self._lines = path.read_bytes().split(b"\n")[:-1]  # the last one may be half written

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the lines from a number on."""
        for line in self._lines[log_number_from:]:
            yield parse_json(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Raise, since the journal is another's."""
        raise AssertionError("an Optuna study is only read")
