"""The lines that begin a sweep, and those about trials that were interrupted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from automl.admission.refusals import gib_text
from automl.admission.requests import OOM_GROWTH, SEEN_PEAK_MARGIN
from automl.config import UNLIMITED_N_TRIALS, Config, ObjectiveKind, StudyConfig
from automl.config.range_text import range_text
from automl.data.dataset import Dataset
from automl.record.study_directory import study_command
from automl.record.texts import counted, duration_text, fit_line
from automl.running.loop.messages import AdmittedExecution
from automl.running.loop.retries import MAX_DEATHS
from automl.running.opening.parts import SweepParts
from automl.running.prepare.several_metrics import metrics_text
from automl.search.domains import ChoiceDomain
from automl.search.search_space import parse_space
from automl.terminal.console import aligned_lines
from automl.trial import (
    Direction,
    InterruptedOutcome,
    OutOfMemoryOutcome,
    RequestSource,
    TrialOutcome,
    TrialState,
)

MAX_COLUMNS_SHOWN = 20
"""Largest number of a table's columns that are shown."""
COLUMNS = ("column", "taken as", "why")


def greeting_lines(parts: SweepParts) -> Iterator[str]:
    """Yield lines that say what the sweep works on, and how to continue it."""
    yield from parts.prepared.notes
    if (reason := parts.prepared.sampler_decision.reason) is not None:
        yield reason
    if parts.prepared.purpose.explains_choices:
        yield from notes_of_config(parts.config)
    if not parts.study.n_asked and parts.prepared.purpose.explains_choices:
        yield from columns_table(parts.prepared.dataset, parts.config.study)
    yield from parts.store.peers.greeting()
    n_gpus = parts.config.admission.devices_per_trial
    if n_gpus > 1 and all(device.on_host for device in parts.reader.addresses):
        yield f"admission.devices_per_trial={n_gpus} counts GPUs: here a trial has the host"
    config, study = parts.config.study, parts.study
    before = study.n_asked
    if not parts.prepared.purpose.stands_alone:
        yield f"if it is interrupted: {parts.prepared.how_to_go_on()}"
        return
    n_open = sum(study.counts()[state] for state in (TrialState.RUNNING, TrialState.PAUSED))
    if before >= config.decided_n_trials and not n_open:
        yield (
            f"study {study.name} has {counted(before, 'trial')} already, "
            f"study.n_trials={config.decided_n_trials} asks for no more; go on with: "
            f"{parts.prepared.how_to_go_on(n_trials=before + 20)}"
        )
        return
    is_builtin = parts.config.objective.kind is ObjectiveKind.builtin
    has_packs = is_builtin and parts.executor.can.packs
    yield (
        f"study {study.name}: {how_far(config)}"
        f"{f', {before} of them from before' if before else ''}, up to {parts.n_places} "
        f"{'trials or packs ' if has_packs else ''}at once; if it is interrupted: "
        f"{parts.prepared.how_to_go_on()}"
    )


def notes_of_config(config: Config) -> Iterator[str]:
    """Yield what an objective's value is called, and which choices may be meant as a range."""
    if config.study.metrics.are_several:
        yield metrics_text(config)
    from_python = config.objective.kind is ObjectiveKind.called
    is_own = from_python or config.objective.kind in (ObjectiveKind.python, ObjectiveKind.optuna)
    if is_own and not config.study.metrics.are_several:
        size = "large" if config.study.decided_direction is Direction.maximize else "small"
        other = "; metric=NAME names another, direction= turns it"
        yield (
            f"{config.objective.target} is judged by {config.study.metric}: the number it returns, "
            f"or what it reports by that name; {size} values are good"
            f"{other if config.study.metric == StudyConfig.metric else ''}"
        )
    for param in parse_space(config.space).params:
        if isinstance(param.domain, ChoiceDomain) and (ends := param.domain.far_apart()):
            yield f"space.{param.name}: {_as_range(param.name, ends, from_python=from_python)}"


def _as_range(name: str, ends: tuple[float, float], *, from_python: bool) -> str:
    low, high = ends
    written = range_text(low, high, log=low > 0)
    line = f"space={{{name!r}: {written!r}}}" if from_python else f"space.{name}={written}"
    return f"{low} and {high} are two choices, and nothing between is tried; a range is {line}"


def columns_table(dataset: Dataset | None, study: StudyConfig) -> Iterator[str]:
    """Yield lines that say how each column was taken. Among many columns those that are not plain
    numbers come first."""
    if dataset is None or not dataset.column_rows:
        return
    rows = [*dataset.column_rows]
    if len(rows) > MAX_COLUMNS_SHOWN:
        rows.sort(key=lambda row: row.is_plain)
    shown = [(fit_line(r.name, 40), r.kind, fit_line(r.why, 100)) for r in rows[:MAX_COLUMNS_SHOWN]]
    yield from aligned_lines(COLUMNS, shown, n_left=3)
    if (n_more := len(rows) - MAX_COLUMNS_SHOWN) > 0:
        yield f"and {counted(n_more, 'more column')}: {study_command('plan', study)}"


def how_far(study: StudyConfig) -> str:
    """Return how far a sweep goes: `to 20 trials`, or as many trials as its time limit allows."""
    if study.decided_n_trials < UNLIMITED_N_TRIALS or study.timeout_seconds is None:
        return f"to {counted(study.decided_n_trials, 'trial')}"
    return f"as many trials as {duration_text(study.timeout_seconds)} allow"


def interruption_line(
    outcome: TrialOutcome,
    execution: AdmittedExecution,
    *,
    is_stopping: bool = False,
    shown: Callable[[int], int] = int,
) -> str | None:
    """Return what is said of a trial that was interrupted through no fault of the user, or None.

    A trial whose process died goes on in another unless the sweep stops or this was its last
    allowed death. `shown` gives the number by which people know a trial.
    """
    match outcome:
        case InterruptedOutcome(trial=number, cause=cause, by_worker_death=True):
            line = f"trial {shown(number)}: {cause}"
            deaths = execution.members[number].deaths + 1
            if deaths >= MAX_DEATHS:
                return f"{line} (death {deaths} of {MAX_DEATHS})"
            return line if is_stopping else f"{line}; it goes on in another"
        case InterruptedOutcome(trial=number, cause=cause, lease_ended=True):
            return f"trial {shown(number)} ended: {cause}; it goes on where it is not lost"
        case InterruptedOutcome(trial=number, cause=cause, pack_dissolved=True):
            return f"trial {shown(number)} goes on alone: {cause}"
    return None


class DeclaredMemoryAdvice:
    """Says what to declare when memory runs out within the user's declared size."""

    def __init__(self) -> None:
        self._said_bytes = 0

    def line(self, outcome: TrialOutcome, execution: AdmittedExecution) -> str | None:
        """Return the advice, or None.

        The advice is repeated only for a larger size. There is none if others took the memory, or
        for a pack, whose trials go on alone.
        """
        if not isinstance(outcome, OutOfMemoryOutcome):
            return None
        declared, held = execution.request.memory_bytes, execution.peak_bytes
        if declared is None or execution.request.source is not RequestSource.DECLARED:
            return None
        if execution.n_lanes > 1 or execution.disturbed:
            return None
        enough = math.ceil(max(OOM_GROWTH * declared, SEEN_PEAK_MARGIN * held))
        if enough <= self._said_bytes:
            return None
        self._said_bytes = enough
        seen = f", it held {gib_text(held)} by then" if held > declared else ""
        return (
            f"trial {outcome.trial} ran out of memory: admission.request={_mib(declared)} is too "
            f"little for it{seen}; declare admission.request={_mib(enough)}. It runs again with "
            "more"
        )


def _mib(size_bytes: int) -> str:
    """A size as it is declared, rounded up."""
    return f"{math.ceil(size_bytes / 2**20)}MiB"
