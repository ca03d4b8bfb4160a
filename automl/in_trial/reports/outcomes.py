"""Turns what an objective returned or raised into one `TrialOutcome`.

The functions have no effects: nothing is emitted, written or retried here. Optuna's exception for a
pruned trial is recognised without importing Optuna.
"""

from __future__ import annotations

import math
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from automl.config.metrics import MEMORY_PEAK, MODEL_BYTES
from automl.in_trial.reports.report_values import plain_number
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import (
    MissingParamError,
    TrialInterrupted,
    TrialPruned,
    UnfitObjectiveError,
)
from automl.record.study_files import BEST_CHECKPOINT_FILE
from automl.record.texts import describe_value, fit_line, fit_text
from automl.record.trial_record import is_value_returned
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    OutOfMemoryOutcome,
    Params,
    PrunedOutcome,
    TrialOutcome,
    Verdict,
)


class RankDiedError(TrialInterrupted):
    """Raised when one process of a trial that trains in several has died; all are then ended."""


class PrunedWithoutReports(TrialPruned):
    """Raised when an objective raises `optuna.TrialPruned` before it reports anything. Optuna takes
    this to mean that the trial is known to be bad."""


def is_optuna_pruning(error: BaseException) -> bool:
    """Return whether the error is `optuna.TrialPruned`, without importing Optuna."""
    pruned = getattr(sys.modules.get("optuna.exceptions"), "TrialPruned", None)
    return isinstance(pruned, type) and isinstance(error, pruned)


_MAX_CAUSE_CHARACTERS = 500
_MAX_DETAILS_CHARACTERS = 10_000
_WRONG_ARGUMENT = re.compile(r"unexpected keyword argument|missing \d+ required")
_NO_MEMORY_TEXTS = (
    "CUDA out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",  # main memory; torch raises RuntimeError
    "DefaultCPUAllocator: not enough memory",
)

_DEVICE_FAILED_TEXTS = (
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "CUDA error: unknown error",
    "CUDA error: unspecified launch failure",
    "CUDA error: the launch timed out",
    "CUDA-capable device(s) is/are busy or unavailable",
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
)
"""CUDA's messages about a device that was lost, failed, or is in use by others. A bug causes some
of them, too; the second time, the cause is taken for a bug."""


def outcome_of_return(returned: object, record: TrialReports) -> TrialOutcome:
    """Return the outcome of an objective that returned."""
    if record.verdict is Verdict.PRUNE:  # it swallowed the exception
        return outcome_of_exception(TrialPruned("pruned"), record)
    if record.verdict is Verdict.STOP:
        return outcome_of_exception(TrialInterrupted("the sweep stops"), record)
    number = record.spec.number
    if isinstance(returned, Mapping):  # its metrics are reported; one of them is the value
        returned = returned.get(record.goal.metric)
    if returned is None:
        value, cause = record.best_value, _no_value(record)
    else:
        value, cause = _finite(returned)
    if value is None:
        hopeless = returned is None and _never_reported(record)
        return FailedOutcome(number, time.time(), cause, hopeless=hopeless)
    return finished_outcome(value, record)


def finished_outcome(value: float, record: TrialReports) -> TrialOutcome:
    """Return the outcome of a trial with the value `value`, if it also has a value of each further
    metric."""
    number, values = record.spec.number, known_values(value, record)
    missing = [name for name in record.goal.more_metrics if name not in values]
    if missing:
        never = [name for name in missing if name not in record.metric_names]
        cause = _missing_metrics(never or missing, record)
        return FailedOutcome(number, time.time(), cause, hopeless=bool(never))
    reported = _contradicted_reports(value, values, record)
    return FinishedOutcome(
        number, time.time(), value, record.part_values, values, reported, record.final_metrics
    )


def _contradicted_reports(
    value: float, values: Mapping[str, float], record: TrialReports
) -> dict[str, float]:
    """Return what the reports say of each metric whose value is another one, by name.

    A value that the plan takes at the trial's end contradicts no report.
    """
    if record.goal.value_at_end:
        return {}
    report = record.reports.get(record.best_step or 0, {})
    reported = {name: record.further.reported(name, report) for name in record.goal.more_metrics}
    reported[record.goal.metric] = record.best_value
    values = {**values, record.goal.metric: value}
    return {n: r for n, r in reported.items() if r is not None and is_value_returned(values[n], r)}


def known_values(value: float, record: TrialReports) -> dict[str, float]:
    """Return the values by metric that a trial has; empty for a study with one metric."""
    if not record.goal.more_metrics:
        return {}
    report = record.reports.get(record.best_step or 0, {})
    found = {name: record.further.value(name, report) for name in record.goal.more_metrics}
    return {record.goal.metric: value} | {n: v for n, v in found.items() if v is not None}


def _missing_metrics(names: Sequence[str], record: TrialReports) -> str:
    """Return why a trial lacks a value of further metrics."""
    remedies = {
        MODEL_BYTES: f"It is the size of {BEST_CHECKPOINT_FILE}: report with a state (best=…)",
        MEMORY_PEAK: "It could not be measured here: report it yourself",
    }
    remedy = remedies.get(names[0], "Report it, return it in a dict of metrics, or name another")
    return (
        f"study.metric or study.constraints name {', '.join(names)}, of which the trial has no "
        f"finite value; reported: {', '.join(sorted(record.metric_names)) or 'none'}. {remedy}."
    )


def outcome_of_exception(error: BaseException, record: TrialReports) -> TrialOutcome:
    """Return the outcome of an objective that raised."""
    number = record.spec.number
    if isinstance(error, RankDiedError):
        cause = fit_line(str(error))
        return InterruptedOutcome(number, time.time(), cause, by_worker_death=True, killed=True)
    if isinstance(error, TrialInterrupted) or (
        isinstance(error, KeyboardInterrupt) and _may_be_ctrl_c(record)
    ):
        return InterruptedOutcome(number, time.time(), fit_line(str(error)) or type(error).__name__)
    if isinstance(error, PrunedWithoutReports):
        return PrunedOutcome(number, time.time(), step=0, value=math.nan)
    if is_pruning(error):
        if record.best_value is None or record.last_step is None:
            cause = f"TrialPruned was raised, but {_no_value(record)}"
            return FailedOutcome(number, time.time(), cause)
        value = math.nan if record.goal.value_at_end else record.best_value
        values = known_values(value, record)
        return PrunedOutcome(number, time.time(), record.last_step, value, values)
    if is_out_of_memory(error):
        return OutOfMemoryOutcome(number, time.time(), _one_line(error))
    if record.on_gpu and is_device_failure(error):
        cause = f"its GPU failed: {_one_line(error)}"
        return InterruptedOutcome(number, time.time(), cause, by_worker_death=True)
    cause = _one_line(error) + _hint(error, record.spec.params)
    if "Ray Train" in str(error):
        cause += _ray_hint(record)
    if isinstance(error, KeyboardInterrupt):
        cause = f"its objective raised {cause}"
    details = fit_text("".join(traceback.format_exception(error)), _MAX_DETAILS_CHARACTERS)
    hopeless = isinstance(error, UnfitObjectiveError) or (
        isinstance(error, MissingParamError) and error.name not in record.goal.space
    )
    return FailedOutcome(number, time.time(), cause, details, hopeless)


def _may_be_ctrl_c(record: TrialReports) -> bool:
    """Return whether a KeyboardInterrupt may come from the keyboard.

    Workers ignore SIGINT and a sweep handles it without an exception. Only an objective that
    installed Python's own handler can raise it for a key press.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return record.verdict is Verdict.STOP or (in_main_thread and raises)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out, which torch does not always say by its own exception."""
    if isinstance(error, MemoryError) or _is_torch_type(error, "OutOfMemoryError"):
        return True
    return isinstance(error, RuntimeError) and mentions_out_of_memory(_exception_text(error))


def mentions_out_of_memory(text: str) -> bool:
    """Return whether a text says that the device or the host was out of memory."""
    return any(known in text for known in _NO_MEMORY_TEXTS)


def is_device_failure(error: BaseException) -> bool:
    """Return whether the error says that the GPU failed; its process is useless then."""
    return isinstance(error, RuntimeError) and mentions_device_failure(_exception_text(error))


def mentions_device_failure(text: str) -> bool:
    """Return whether a text says that the GPU failed."""
    return any(known in text for known in _DEVICE_FAILED_TEXTS)


def is_pruning(error: BaseException) -> bool:
    """Return whether the error ends a trial as pruned; Optuna's exception does, too."""
    return isinstance(error, TrialPruned) or is_optuna_pruning(error)


def _is_torch_type(value: Any, name: str) -> bool:
    """Return whether a value is of torch's class `name`, without importing torch."""
    kind = getattr(sys.modules.get("torch"), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _finite(returned: Any) -> tuple[float | None, str]:
    """Return the returned value as a finite float and an empty text, or None and the reason."""
    remedy = "return a finite number, a dict of metrics, or None and report the study's metric."
    value = plain_number(returned)
    if value is None:
        shown = f"{describe_value(returned)} ({type(returned).__name__})"
        return None, f"the objective returned {shown}: {remedy}"
    if not math.isfinite(value):
        return None, f"the objective returned {value}: {remedy}"
    return value, ""


def _never_reported(record: TrialReports) -> bool:
    """Return whether no report had the study's metric, so that no other trial's will have it."""
    return _has_values(record) and record.goal.metric not in record.metric_names


def _has_values(record: TrialReports) -> bool:
    """Return whether any value was reported or logged; a library's values are no reports."""
    return bool(record.n_reports or record.metric_names)


def _no_value(record: TrialReports) -> str:
    """Return why the reports hold no value of the study's metric."""
    goal = record.goal
    if not _has_values(record):
        return (
            "nothing returned and nothing reported: return a number, or call "
            f"trial.report(step, {{{goal.metric!r}: …}}).{_ray_hint(record)}"
        )
    if _never_reported(record):
        return (
            f"study.metric={goal.metric} was never reported. Wanted: {goal.metric}; "
            f"reported: {', '.join(sorted(record.metric_names)) or 'none'}. Set study.metric to "
            "one of these, or report it."
        )
    return f"{goal.metric} was never a finite number in {record.n_reports} reported steps."


def _ray_hint(record: TrialReports) -> str:
    """Return what replaces a report to Ray Tune, if the objective has imported that."""
    if "ray.tune" not in sys.modules and "ray.train" not in sys.modules:
        return ""
    return (
        " Ray's own report(…) tells only Ray: write "
        f"automl.report({{{record.goal.metric!r}: …}}) in its place."
    )


def _hint(error: BaseException, params: Params) -> str:
    """Return the trial's params if a missing or unknown one may be the cause, else nothing."""
    key: Any = error.args[0] if error.args else None
    missing_key = (isinstance(error, KeyError) and not isinstance(error, MissingParamError)) and (
        isinstance(key, str) and key not in params
    )
    wrong_argument = (
        isinstance(error, TypeError) and _WRONG_ARGUMENT.search(_exception_text(error)) is not None
    )
    if missing_key or wrong_argument:
        return f" (the trial's params: {', '.join(params) or 'none'})"
    return ""


def _one_line(error: BaseException) -> str:
    """Return `ValueError: its message`, on one line of bounded length."""
    text = _exception_text(error).removeprefix(f"{type(error).__module__}.")
    return fit_line(text, _MAX_CAUSE_CHARACTERS)


def _exception_text(error: BaseException) -> str:
    """Return `ValueError: its message`, also for an exception whose `str` fails."""
    return "".join(traceback.format_exception_only(error))
