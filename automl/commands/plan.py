"""`plan`: says what a sweep would do, before it does it.

It takes the words of a sweep, or the name of a study, and prints what they compose to, how the
columns of a table are taken, the memory that trials ask for, how many run at once, and how long
they take. Nothing is written. On a table, the first trial of each family trains for a short time
(`running/trials/family_outlook.py`); with `measure=true` some steps of a small, a middle and a
large trial are timed (`gain.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from automl.admission.refusals import gib_text
from automl.admission.requests import RequestMaker
from automl.commands.command_call import CommandCall
from automl.commands.gain import print_gain_report, sizes_to_time
from automl.config import UNLIMITED_N_TRIALS, Config, DataKind, ObjectiveKind
from automl.config.command_arguments import PlanArguments
from automl.config.range_text import entry_text
from automl.devices.device_reader import open_device_reader, take_reading
from automl.devices.device_reading import DeviceReading
from automl.devices.memory_promises import open_promises
from automl.errors import AutoMLError
from automl.execution.worker_process import preload_fork_server
from automl.models.family import family_name
from automl.record.secrets import mask_urls
from automl.record.studies import read_study, study_path
from automl.record.study_record import StudyRecord
from automl.record.texts import counted, duration_text, fit_line, size_text
from automl.running.opening.recovery import learn_memory
from automl.running.opening.warm_start import training_preloads
from automl.running.prepare.outlook import (
    SizeOutlook,
    TimeOutlook,
    size_outlook,
    time_from_record,
    time_from_seconds,
)
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.sweep_lines import how_far
from automl.running.trials.family_outlook import FamilyPlanner, TableOutlook
from automl.running.trials.step_timing import TimingRow
from automl.search.search_space import SpaceParam
from automl.terminal.console import CommandConsole, open_console, params_text
from automl.terminal.machine_output import write_answer
from automl.tracking.tracking_uri import resolve_uri
from automl.trial import RequestSource

COLUMN_HEADS = ("column", "taken as", "why", "features")
SIZE_HEADS = ("size", "memory", "known by", "at once")
FAMILY_HEADS = ("family", "time known by", "rows", "models", "trials", "time", "asked", "held")
KNOWN_BY = {
    RequestSource.DECLARED: "admission.request",
    RequestSource.ESTIMATED: "arithmetic on its params",
    RequestSource.UNKNOWN: "nothing before one has run",
    RequestSource.SEEN: "a trial with these params",
    RequestSource.LEARNED: "the trials that have run",
}
"""How a request is known, for people."""


def run(call: CommandCall) -> int:
    """Print the plan. Raises AutoMLError where the sweep would be refused."""
    config, arguments = call.config, call.typed_arguments(PlanArguments)
    measures = arguments.measure
    times_families = config.data.kind is DataKind.csv and arguments.timing_seconds > 0
    if times_families:
        preload_fork_server(*training_preloads(config))  # runs while the table is read
    prepared = prepare_study(config, trains=measures)
    record = _record(config)
    reading = _reading(prepared)
    requests = prepared.make_requests()
    if record is not None:
        learn_memory(record, requests)
    sizes = [
        size_outlook(prepared, requests, reading, size.name, size.params)
        for size in sizes_to_time(prepared)
    ]
    families = _family_planner(prepared, record, requests, reading, arguments.timing_seconds)
    time = time_from_record(prepared, record, _typical(sizes))
    settings = dict(_settings(prepared, record))
    columns = [] if prepared.dataset is None else [*prepared.dataset.column_rows]
    console = open_console()
    _say_settings(console, settings)
    _say_data(console, prepared, columns)
    _say_devices(console, reading, sizes)
    outlook = None if families is None else families.outlook()
    if outlook is not None:
        time = outlook.time
        _say_families(console, outlook)
    measured: dict[str, Any] = {}
    if measures:
        rows, advice = print_gain_report(prepared)
        measured = {"timings": rows, "advice": advice}
        time = time or _measured_time(prepared, rows, sizes)
    console.say(_time_text(prepared, time, measured=bool(measured)))
    own = {"families": [] if outlook is None else [asdict(one) for one in outlook.families]}
    write_answer(_answer(prepared, settings, sizes, time) | own | measured)
    return 0


def _family_planner(
    prepared: PreparedStudy,
    record: StudyRecord | None,
    requests: RequestMaker,
    reading: DeviceReading,
    seconds: float,
) -> FamilyPlanner | None:
    """Return what tells the time of each family; None: no family of ours trains on a table."""
    is_table = prepared.config.data.kind is DataKind.csv
    if not is_table or prepared.dataset is None or prepared.plan.users_target is not None:
        return None
    return FamilyPlanner(prepared, prepared.dataset, record, requests, reading, seconds)


def _record(config: Config) -> StudyRecord | None:
    """Return the record of the named study; None: it has none yet."""
    if config.study.name is None or not study_path(config.study).exists():
        return None
    return read_study(study_path(config.study))


def _reading(prepared: PreparedStudy) -> DeviceReading:
    """Read once the devices on which trials may run. Raises AutoMLError."""
    beside = prepared.uses_cpu_beside_gpus
    with (
        contextlib.closing(open_device_reader(prepared.devices, beside_gpus=beside)) as reader,
        contextlib.closing(open_promises(reader.addresses)) as promises,
    ):
        reading = take_reading(reader, dict, promises.others)
    if reading.error is not None:
        raise AutoMLError(f"the devices cannot be read: {reading.error}")
    return reading


def _typical(sizes: Sequence[SizeOutlook]) -> int:
    """Return how many trials of the middle size run at once."""
    return sizes[len(sizes) // 2].n_at_once if sizes else 1


# --- what the words compose to --------------------------------------------------------------------


def _settings(prepared: PreparedStudy, record: StudyRecord | None) -> Iterator[tuple[str, str]]:
    config, study = prepared.config, prepared.config.study
    has = "" if record is None else f", which has {counted(len(record.trials), 'trial')}"
    yield "study", f"{study.name or 'a new one'} in {study.dir}{has}"
    yield "trials", _length(config)
    yield "objective", _objective(prepared)
    metrics = study.metrics.metrics
    yield "metric", ", ".join(f"{metric.name} ({metric.direction.value})" for metric in metrics)
    yield from _space(prepared)
    reason = prepared.sampler_decision.reason
    yield "sampler", type(prepared.sampler).__module__.rpartition(".")[2]
    if reason is not None:
        yield "because", reason
    yield "pruner", _pruner(prepared)
    uri = config.tracking.uri
    yield (
        "MLflow",
        "nothing is sent" if uri == "none" else mask_urls(resolve_uri(config.tracking).text),
    )


def _space(prepared: PreparedStudy) -> Iterator[tuple[str, str]]:
    """Yield a line for each param, or for each family where trials choose one."""
    choice = prepared.choice
    families = list(prepared.plan.family.by_choice) if choice is not None else []
    entries = {param.name: _entry_text(param, choice) for param in prepared.space.params}
    for family in families:
        own = {n: text for n, text in entries.items() if n.startswith(f"{family}_")}
        listed = (f"{n.removeprefix(f'{family}_')} {text}" for n, text in own.items())
        yield f"space of {family}", "; ".join(listed)
        entries = {n: text for n, text in entries.items() if n not in own}
    for name, text in entries.items():
        yield f"space.{name}", text


def _entry_text(param: SpaceParam, choice: str | None) -> str:
    """Return a param's entry as it is typed, and its conditions but for the family's."""
    whens = [
        f"{name} is {' or '.join(map(str, values))}"
        for name, values in param.when.items()
        if name != choice
    ]
    when = f" (when {' and '.join(whens)})" if whens else ""
    return entry_text(param.domain.plain()) + when


def _length(config: Config) -> str:
    study = config.study
    limit = study.timeout_seconds
    if limit is None or study.decided_n_trials >= UNLIMITED_N_TRIALS:
        return how_far(study)
    return f"{how_far(study)}, and none starts after {duration_text(limit)}"


def _objective(prepared: PreparedStudy) -> str:
    objective = prepared.config.objective
    if objective.kind is ObjectiveKind.builtin:
        family = prepared.plan.family
        members = ", ".join(family.by_choice)
        return f"built-in training of {family_name(family)}{f' ({members})' * bool(members)}"
    if objective.kind is ObjectiveKind.command:
        return f"the program {objective.command}"
    return f"{objective.target} (objective={objective.kind.name})"


def _pruner(prepared: PreparedStudy) -> str:
    name = type(prepared.config.pruner).__module__.rpartition(".")[2]
    n_reports = prepared.plan.n_reports
    if name == "none" or n_reports is None or prepared.pruners:
        return name
    judged = [step + 1 for step in prepared.rungs(-1, n_reports - 1) if step + 1 < n_reports]
    after = ", ".join(map(str, judged)) or "no report"
    return f"{name}: of {counted(n_reports, 'report')} a trial is judged after {after}"


def _say_settings(console: CommandConsole, settings: dict[str, str]) -> None:
    width = max(map(len, settings))
    for name, text in settings.items():
        console.say(f"{name:{width}}  {fit_line(text, 300)}")


# --- the data -------------------------------------------------------------------------------------


def _say_data(console: CommandConsole, prepared: PreparedStudy, columns: Sequence[Any]) -> None:
    for note in prepared.notes:
        console.say(fit_line(note))
    if columns:
        rows = [(fit_line(r.name), r.kind, fit_line(r.why), str(r.n_features)) for r in columns]
        console.table(COLUMN_HEADS, rows, n_left=3)


# --- devices and time -----------------------------------------------------------------------------


def _say_devices(
    console: CommandConsole, reading: DeviceReading, sizes: Sequence[SizeOutlook]
) -> None:
    for device in reading.devices:
        free, total = gib_text(device.free_bytes), gib_text(device.total_bytes)
        console.say(f"{device.name}: {free} of {total} free")
    for size in sizes:
        console.say(f"{size.name}: {params_text(size.params)}", "dim")
    rows = [
        (
            size.name,
            _bytes_text(size.memory_bytes),
            KNOWN_BY.get(size.source, size.source.value),
            str(size.n_at_once),
        )
        for size in sizes
    ]
    console.table(SIZE_HEADS, rows, n_left=3)
    for limit in dict.fromkeys(size.limit for size in sizes):
        console.say(f"no more at once: {limit}", "dim")


def _say_families(console: CommandConsole, outlook: TableOutlook) -> None:
    rows = [
        (
            one.family,
            one.known_by,
            f"{one.n_rows:,}",
            str(one.n_models),
            "" if one.n_trials is None else str(one.n_trials),
            "unknown" if one.seconds is None else f"{one.seconds:.3g} s",
            _bytes_text(one.memory_bytes),
            "" if one.peak_bytes is None else _bytes_text(one.peak_bytes),
        )
        for one in outlook.families
    ]
    console.table(FAMILY_HEADS, rows, n_left=2)
    console.say(
        "rows: of a model; models: of a trial, one a fold; trials: that end; asked: memory that "
        "admission reserves for a trial; held: the most that the timed one held",
        "dim",
    )
    if outlook.timed:
        console.say(f"{outlook.timed}; timing_seconds=0 leaves it out", "dim")


def _bytes_text(n_bytes: int | None) -> str:
    return "unknown" if n_bytes is None else size_text(n_bytes, 1024)


def _measured_time(
    prepared: PreparedStudy, rows: Sequence[TimingRow], sizes: Sequence[SizeOutlook]
) -> TimeOutlook | None:
    """Return the time by the first way of each size, which is the way of the words, on the devices
    on which admission places trials; None: no whole trial was timed there."""
    placed = {device for size in sizes for device in size.n_by_device}
    firsts = {(row.device, row.size.name): row.timing for row in reversed(rows)}
    seconds = [
        timing.trial_seconds
        for (device, _), timing in firsts.items()
        if device.address in placed and timing.trial_seconds is not None
    ]
    known_by = f"the mean of {counted(len(seconds), 'timing')}, none pruned"
    return time_from_seconds(prepared, seconds, 0, _typical(sizes), known_by)


def _time_text(prepared: PreparedStudy, time: TimeOutlook | None, *, measured: bool) -> str:
    if time is not None:
        start = ""
        if time.start_seconds:
            start = f", after {time.start_seconds:.1f} s for the start of their processes"
        what = f"about {duration_text(time.seconds)} for {counted(time.n_left, 'more trial')}"
        if time.limit_seconds is not None:
            limit = duration_text(time.limit_seconds)
            what = f"about {counted(time.n_left, 'trial')} end within {limit}"
        return (
            f"{what}, without the start of the sweep: {time.n_at_once} at once, "
            f"{time.trial_seconds:.3g} s each{start} ({time.known_by})"
        )
    if measured:
        reason = "no whole trial was timed, or n_trials= does not end the sweep"
        return f"how long the trials take is not known: {reason}"
    how = "measure=true times some steps"
    if prepared.config.objective.kind in (ObjectiveKind.command, ObjectiveKind.outside):
        how = "run one first: n_trials=1"
    return f"how long a trial takes is not known before one has run; {how}"


def _answer(
    prepared: PreparedStudy,
    settings: dict[str, str],
    sizes: Sequence[SizeOutlook],
    time: TimeOutlook | None,
) -> dict[str, Any]:
    dataset = prepared.dataset
    return {
        "settings": settings,
        "notes": list(prepared.notes),
        "columns": [] if dataset is None else list(dataset.column_rows),
        "sizes": [
            {
                "name": size.name,
                "params": dict(size.params),
                "memory_bytes": size.memory_bytes,
                "known_by": size.source.value,
                "at_once": size.n_at_once,
                "limit": size.limit,
            }
            for size in sizes
        ],
        "time": None if time is None else asdict(time) | {"seconds": time.seconds},
    }
