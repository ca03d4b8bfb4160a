"""What the study knows and the event log has lost: put back when both are open.

The end of the log can be lost while the study is whole (a repaired file system, an old copy), and
MLflow is made from the log alone. The other way round, an outcome that only the log has is told to
the study when the sweep takes its trials over.
"""

from __future__ import annotations

from automl.record.events import EventLog
from automl.search.study import Study
from automl.trial import Started


def put_back(study: Study, log: EventLog) -> int:
    """Append to the log how trials ended, where it lacks that, and that they began, where it lacks
    that too. Returns the number of trials. Raises StorageError.

    Reports are not put back: MLflow may have them, and with other times they would be there twice.
    """
    trials = log.record.trials
    known = {number for number, trial in trials.items() if trial.state.is_final}
    lost = study.ended(but=known)
    for trial in lost:
        before = trials.get(trial.number)
        if before is None or not before.n_starts:
            log.append(Started(trial.number, trial.began, trial.params, device="unknown"))
        log.append(trial.outcome)
    return len(lost)
