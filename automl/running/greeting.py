"""What a sweep says first."""

from __future__ import annotations

from collections.abc import Iterator

from automl.config import MANY_TRIALS, StudyConfig
from automl.data.dataset import Dataset
from automl.record.directory import command_line
from automl.record.texts import fit_line
from automl.running.console import aligned
from automl.running.parts import Parts
from automl.running.readable import clock
from automl.trial import TrialState

MOST_COLUMNS = 20
"""That are shown of a table's."""
COLUMNS = ("column", "taken as", "why")


def greeting(parts: Parts) -> Iterator[str]:
    """What it works on, and how to come back to it; a line each."""
    yield from parts.prepared.notes
    if not parts.study.n_asked and parts.config.refit.of is None:
        yield from columns_table(parts.prepared.dataset, parts.config.study)
    yield from parts.others.greeting()
    n_gpus = parts.config.admission.devices_per_trial
    if n_gpus > 1 and all(device.on_host for device in parts.reader.addresses):
        yield f"admission.devices_per_trial={n_gpus} counts GPUs: here a trial has the host"
    config, study = parts.config.study, parts.study
    before = study.n_asked
    if parts.config.refit.of is not None:
        yield f"if it is interrupted: {parts.prepared.how_to_go_on()}"
        return
    if before >= config.total and not study.counts().get(TrialState.RUNNING):
        yield (
            f"study {study.name} has {before} trials already, study.n_trials={config.total} "
            f"asks for no more; go on with: {parts.prepared.how_to_go_on(n_trials=before + 20)}"
        )
        return
    yield (
        f"study {study.name}: {how_far(config)}"
        f"{f', {before} of them from before' if before else ''}, up to "
        f"{parts.n_places} at once; if it is interrupted: {parts.prepared.how_to_go_on()}"
    )


def columns_table(dataset: Dataset | None, study: StudyConfig) -> Iterator[str]:
    """What was taken for what; of many columns those that are not just numbers first."""
    if dataset is None or not dataset.taken:
        return
    rows = [*dataset.taken]
    if len(rows) > MOST_COLUMNS:
        rows.sort(key=lambda row: row.is_plain)
    shown = [(fit_line(r.name, 40), r.kind, fit_line(r.why, 100)) for r in rows[:MOST_COLUMNS]]
    yield from aligned(COLUMNS, shown, n_left=3)
    if (n_more := len(rows) - MOST_COLUMNS) > 0:
        yield f"and {n_more:,} more columns: {command_line('columns', study)}"


def how_far(study: StudyConfig) -> str:
    """`to 20 trials`, or as many as there is time for."""
    if study.total < MANY_TRIALS or study.timeout_seconds is None:
        return f"to {study.total} trials"
    return f"as many trials as {clock(study.timeout_seconds)} allow"
