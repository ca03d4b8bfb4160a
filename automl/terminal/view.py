"""Describes what a sweep looks like at one moment, as rows of plain values.

The sweep writes the view to `status.json` about once a second, and commands read it from any other
process. The rows of devices say how much memory belongs to whom.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from automl.admission.accounting.account import DeviceAccount
from automl.config import UNLIMITED_N_TRIALS
from automl.devices.device_reading import DeviceProcess, DeviceReading
from automl.errors import ConfigError
from automl.record.append_only import parse_sealed_line, seal_line
from automl.record.disk import nonblocking_opener, write_atomically
from automl.record.studies import unreadable_text
from automl.record.trial_record import TrialRecord
from automl.trial import LOCAL_NODE, Params, TrialState


@dataclass(frozen=True)
class DeviceRow:
    """A device, whose memory is ours, reserved, foreign or free. What it does not tell is None."""

    uuid: str
    """UUID of the device, or `host` for the machine itself."""
    name: str
    total_bytes: int
    ours_bytes: int = 0
    """Bytes held by processes of the sweep."""
    reserved_bytes: int = 0
    """Bytes that are reserved and not taken yet."""
    foreign_bytes: int = 0
    load: float | None = None
    """Utilisation from 0 to 1."""
    power_watts: float | None = None
    temperature_celsius: float | None = None
    nvml_number: int | None = None
    cuda_number: int | None = None
    fault: str | None = None
    pids: tuple[int, ...] = ()
    """Ids of the sweep's processes on the device."""
    node: str = LOCAL_NODE

    @property
    def free_bytes(self) -> int:
        """Bytes that are neither taken nor reserved."""
        taken = self.ours_bytes + self.reserved_bytes + self.foreign_bytes
        return max(0, self.total_bytes - taken)


def device_row(a: DeviceAccount, reading: DeviceReading) -> DeviceRow:
    """Return the row of a device, with memory as admission adds it up."""
    device = a.device
    elsewhere = reading.promised_elsewhere_on(device.address)
    taken = device.total_bytes - device.free_bytes
    foreign = min(taken, max(0, a.foreign_bytes - elsewhere))
    ours = taken - foreign
    own = {process.pid for process in a.own_processes}
    return DeviceRow(
        uuid=device.address.uuid,
        node=device.address.node,
        name=device.name,
        total_bytes=device.total_bytes,
        ours_bytes=ours,
        reserved_bytes=max(0, a.hold_bytes + a.pending_bytes + elsewhere - ours),
        foreign_bytes=foreign,
        load=device.utilisation,
        power_watts=device.power_watts,
        temperature_celsius=device.temperature_celsius,
        nvml_number=device.nvml_number,
        cuda_number=device.cuda_number,
        fault=device.fault,
        pids=tuple(p.pid for p in device.processes if p.owner in own),
    )


def add_sweep_memory(seen: DeviceRow, rows: Sequence[DeviceRow]) -> DeviceRow:
    """Return a device as a process without trials sees it, with the memory of the sweeps."""
    here = [row for row in rows if (row.node, row.uuid) == (seen.node, seen.uuid)]
    taken = seen.ours_bytes + seen.foreign_bytes
    ours = min(taken, sum(row.ours_bytes for row in here))
    reserved = max([seen.reserved_bytes, *(row.reserved_bytes for row in here)])
    return replace(
        seen,
        ours_bytes=ours,
        foreign_bytes=taken - ours,
        reserved_bytes=reserved,
        pids=tuple(pid for row in here for pid in row.pids),
    )


def foreign_processes(processes: Sequence[DeviceProcess], row: DeviceRow) -> list[DeviceProcess]:
    """Return the other processes on the device, largest first."""
    found = [p for p in processes if p.pid not in row.pids]
    return sorted(found, key=lambda p: p.used_bytes or 0, reverse=True)


MAX_BEST_VALUES = 40
MAX_BYTES = 2**24
"""Most bytes read of a `status.json`. One with a thousand waiting trials takes a tenth of a MiB."""


@dataclass(frozen=True)
class RunningRow:
    """A running trial in a view."""

    number: int
    device: str
    params: Params
    seconds: float
    step: int | None
    metrics: Mapping[str, float]
    request_bytes: int | None = None
    """Request of the trial or its pack. None if its size is unknown."""
    peak_bytes: int = 0
    """Most bytes that the trial or its pack was seen to hold. 0 if unknown."""
    seconds_per_step: float | None = None
    """Pace by the reports of this execution. None before the second report."""


@dataclass(frozen=True)
class WaitingRow:
    """A waiting trial, or the next one that is not asked for yet (number None)."""

    number: int | None
    reason: str
    as_it_should: bool = False
    """Whether the trial waits for nothing but its turn."""


@dataclass(frozen=True)
class BestRow:
    number: int
    value: float
    params: Params
    standard_error: float | None = None
    """Standard error of the value over repeats or folds. None for a trial with one model."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The values by metric, in a study of several."""
    reported: float | None = None
    """The best report, if the objective returned another value. None: they agree."""

    @property
    def value_text(self) -> str:
        """The value for people, `0.16521 ± 0.015` where its spread is known."""
        if self.standard_error is None:
            return f"{self.value:.5g}"
        return f"{self.value:.5g} ± {self.standard_error:.2g}"


def best_row(trial: TrialRecord, metric: str) -> BestRow:
    """Return the row of a trial that has ended with a value of the study's metric."""
    assert trial.value is not None
    values, reported = dict(trial.values), trial.reported.get(metric)
    return BestRow(trial.number, trial.value, trial.params, trial.standard_error, values, reported)


@dataclass(frozen=True)
class FamilyRow:
    """The trials of one family, and their weight in the ensemble."""

    name: str
    best: float
    """Best value by the study's metric."""
    weight: float
    """Weight of the family's models in the ensemble, from 0 to 1."""


@dataclass(frozen=True)
class EnsembleRow:
    """The ensemble of the trials finished so far."""

    metric: str
    value: float
    n_models: int
    families: tuple[FamilyRow, ...] = ()
    """Rows of the families, the best first."""


@dataclass(frozen=True)
class FailureRow:
    """The trials that failed for one cause."""

    n: int
    cause: str
    """Cause of the first of the failures, in the words of that trial."""
    first: int
    """Number of the first trial that failed for this cause."""


@dataclass(frozen=True)
class SweepView:
    """All that the live table, `status.json` and the plain lines are made from."""

    study: str
    directory: str
    time: float
    n_trials: int
    metric: str
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of trials by state (`TrialState.value`)."""
    best: BestRow | None = None
    """The best trial; of several metrics the one at the knee of the front."""
    front: tuple[BestRow, ...] = ()
    """The trials that no other is better than, in a study of several metrics."""
    ensemble: EnsembleRow | None = None
    running: tuple[RunningRow, ...] = ()
    waiting: tuple[WaitingRow, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    """The devices as the sweep sees them. Empty if they cannot be read now."""
    failures: tuple[FailureRow, ...] = ()
    """The most frequent causes. `counts` has the number of all failed trials."""
    seconds: float = 0.0
    """Seconds since this sweep was called, or up to the last event of a sweep that has ended."""
    earlier_seconds: float = 0.0
    """The same of all earlier sweeps of the study, as `status` shows them; 0 in the view of a sweep
    itself."""
    seconds_left: float | None = None
    """Estimate from when trials of this sweep ended. None before enough have, or if the next end is
    overdue."""
    n_undelivered: int = 0
    """Number of events that MLflow has not confirmed yet."""
    trouble: str | None = None
    """What keeps events from MLflow."""
    ended: str | None = None
    """How the sweep ended. None while it runs."""
    reason: str | None = None
    """Why no more trials are asked for though the total is not reached."""
    repeats: tuple[int, ...] = ()
    """Number of the study's trial that each trial of a refit repeats, by the refit's trial number.
    Empty if the sweep is no refit."""
    best_so_far: tuple[float, ...] = ()
    """The best value after each trial that ended; after `MAX_BEST_VALUES` of them, evenly spread,
    if there are more."""
    device_seconds: float | None = None
    """Seconds in which devices had a trial to run, summed over devices and sweeps of the study.
    None in files of earlier versions."""
    is_paused: bool = False
    """Whether the user has paused the sweep."""
    log_bytes: int = 0
    """Size of the event log that the view has all of."""

    def shown(self, number: int) -> int:
        """Return the number by which people know the trial (see `shown_number`)."""
        return shown_number(number, self.repeats)

    @property
    def n_wanted(self) -> int | None:
        """The number of trials that the study goes to; None if only time ends it."""
        return self.n_trials if self.n_trials < UNLIMITED_N_TRIALS else None

    @property
    def progress(self) -> str:
        """The progress as `7/20`, or `7` if only time ends the study."""
        total = "" if self.n_wanted is None else f"/{self.n_wanted}"
        return f"{self.n_ended}{total}"

    @property
    def progress_text(self) -> str:
        """The progress with its noun: `7/20 trials`, `1 trial`."""
        n = self.n_ended if self.n_wanted is None else self.n_wanted
        return f"{self.progress} trial{'s' * (n != 1)}"

    @property
    def share_done(self) -> float:
        """Fraction of the sweep's trials, or of its time, that is done."""
        if self.n_wanted is not None:
            return self.n_ended / self.n_wanted
        if self.seconds_left is None:  # nothing has ended, or the last ones run on
            return float(self.n_ended > 0)
        return self.seconds / max(self.seconds + self.seconds_left, 1e-9)

    @property
    def n_ended(self) -> int:
        return sum(self.counts.get(state.value, 0) for state in TrialState if state.is_final)


def outside_rows(trials: Mapping[int, TrialRecord], now: float) -> tuple[RunningRow, ...]:
    """Return the rows of the trials that are leased to somebody outside at `now`."""
    return tuple(
        RunningRow(
            number=number,
            device=trial.device,
            params=trial.params,
            seconds=trial.seconds + max(0.0, now - trial.last_seconds),
            step=trial.last_step if trial.n_reports else None,
            metrics={},
        )
        for number, trial in sorted(trials.items())
        if trial.lease_until is not None and trial.lease_until > now
    )


def spread_values(values: Sequence[float]) -> tuple[float, ...]:
    """Return at most `MAX_BEST_VALUES` of the values, evenly spread, with first and last."""
    n = min(len(values), MAX_BEST_VALUES)
    return tuple(values[i * (len(values) - 1) // max(1, n - 1)] for i in range(n))


def shown_number(number: int, repeats: Sequence[int]) -> int:
    """Return the number by which people know a trial: in a refit that of the study's trial."""
    return repeats[number] if number < len(repeats) else number


def write_view(path: Path, view: SweepView) -> None:
    line = seal_line(json.dumps(asdict(view), default=str).encode("ascii"))
    write_atomically(path, line.decode("ascii") + "\n")


def read_view(path: Path) -> SweepView:
    """Return the view in a file. Raises ConfigError if the file is missing or is no view."""
    try:
        return load_view(path)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no status yet; the sweep has not begun.") from None
    except OSError as error:
        raise ConfigError(unreadable_text(path, error)) from error
    except ValueError as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); a running sweep rewrites it."
        ) from error


def load_view(path: Path) -> SweepView:
    """Return the view in a file. Raises OSError if it cannot be read, ValueError if it is torn,
    damaged or no view.

    The file may be from anybody: it is read up to a limit, and a pipe is not waited for.
    """
    with open(path, "rb", opener=nonblocking_opener) as file:
        line = file.read(MAX_BYTES).rstrip(b"\n")
    try:
        view: SweepView = _value_of(SweepView, parse_sealed_line(line))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(str(error)) from error
    if not math.isfinite(view.time):
        raise ValueError(f"{view.time} is no time")
    return view


_type_hints = cache(get_type_hints)


def _value_of(hint: Any, plain: Any) -> Any:
    """Return the value of this type, as a sweep writes it. Raises KeyError, TypeError,
    AttributeError or ArithmeticError for another."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _type_hints(hint)
        return hint(**{name: _value_of(hints[name], value) for name, value in plain.items()})
    if get_origin(hint) is tuple:
        return tuple(_value_of(kinds[0], each) for each in plain)
    if get_origin(hint) is Mapping:
        return {name: _value_of(kinds[1], value) for name, value in plain.items()}
    if isinstance(hint, UnionType) and plain is None:
        return None
    if isinstance(hint, UnionType) and len(kinds) == 1:
        return _value_of(kinds[0], plain)
    is_number = hint in (int, float)
    if not isinstance(plain, int | float if is_number else hint):
        raise TypeError(f"{plain!r} is no {hint}")
    if is_number:
        float(plain)  # whole numbers have no end
    return plain
