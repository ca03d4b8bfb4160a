"""Puts right what an earlier sweep of a study has left, and takes its unfinished trials over.

Study and event log each restore what the other has lost: the end of either can be lost while the
other is whole (a repaired file system, an old copy). MLflow is made from the log alone. Outcomes
that only the log has are told to the study when the sweep takes its trials over.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from automl.admission.requests import RequestMaker
from automl.record.event_log import EventLog
from automl.record.study_files import EVENTS_FILE
from automl.record.study_record import StudyRecord
from automl.record.texts import counted
from automl.running.loop.messages import PlannedTrial, WaitingTrial
from automl.search.optuna_trials import BegunTrials, EndedTrial
from automl.search.study import Study
from automl.trial import (
    IMPORTED_DEVICE,
    DeviceKind,
    FailedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    TooLargeOutcome,
    TrialEvent,
    TrialOutcome,
    TrialStarted,
    TrialState,
    TrialTagged,
)


def begun_trials(log: EventLog) -> BegunTrials:
    """Return the params of the trials that the log has, by number.

    A study that has lost them would give their numbers to new trials, which would go on from their
    checkpoints with other params.
    """
    return {n: trial.params for n, trial in log.record.trials.items() if trial.n_starts}


def restore_lost_events(study: Study, log: EventLog) -> str:
    """Append missing starts and outcomes of trials to the log. Return a line about it, or nothing.

    Reports are not restored: MLflow may have them, and with other times they would be there twice.
    Raises StorageError.
    """
    known = {number for number, trial in log.record.trials.items() if trial.state.is_final}
    missing = study.ended(excluded=known)
    log.append_all(event for trial in missing for event in _events_of(trial, study, log.record))
    n = sum(trial.imported is None for trial in missing)
    if not n:
        return ""
    n_lost = counted(n, "trial")
    return f"{EVENTS_FILE} had lost how {n_lost} ended: put back from what Optuna keeps"


def _events_of(trial: EndedTrial, study: Study, record: StudyRecord) -> Iterator[TrialEvent]:
    """Yield the events of a trial that the log lacks. Of an imported trial the time of its end is
    that of its reports, too: Optuna keeps no other."""
    number, recorded, imported = trial.number, record.trials.get(trial.number), trial.imported
    if recorded is None or not recorded.n_starts:
        device = "unknown" if imported is None else IMPORTED_DEVICE
        yield TrialStarted(number, trial.began, trial.params, device=device)
    if imported is not None:
        at, metric = trial.outcome.time, study.leading_metric
        for step, value in sorted(imported.reports.items()):
            yield MetricsReported(number, at, step, {metric: value})
        for name, text in imported.tags.items():
            yield TrialTagged(number, at, name, text)
    yield trial.outcome


def learn_memory(record: StudyRecord, requests: RequestMaker) -> None:
    """Take the memory that earlier sweeps of the study measured."""
    for trial in record.trials.values():
        if isinstance(trial.outcome, FailedOutcome | TooLargeOutcome):
            continue  # the trial may have ended before it held all it wants
        kind = trial.kind or DeviceKind.GPU
        for n_lanes, peak_bytes in trial.peaks.items():
            peak = MemoryPeakMeasured(trial.number, trial.started, peak_bytes, n_lanes)
            requests.learn(trial.params, peak, kind)


def take_over_trials(
    study: Study,
    record: StudyRecord,
    tell: Callable[[TrialOutcome], None],
    elsewhere: Container[int] = (),
) -> list[WaitingTrial]:
    """Return the trials that an earlier sweep left, without those that run `elsewhere`. Tell the
    study logged outcomes and pauses."""
    unfinished = []
    for asked in (asked for asked in study.interrupted() if asked.number not in elsewhere):
        trial = PlannedTrial(asked.number, asked.params)
        known = record.trials.get(asked.number)
        if known is None:
            unfinished.append(WaitingTrial(trial))
        elif known.outcome is not None and known.state.is_final:
            tell(known.outcome)
        else:
            if known.state is TrialState.PAUSED:
                study.pauses.pause(asked.number)
            oom, deaths = known.n_out_of_memory, known.n_deaths
            may_pack = oom == deaths == 0
            unfinished.append(
                WaitingTrial(trial, may_pack, n_ran_out=oom, deaths=deaths, kind=known.kind)
            )
    return unfinished
