"""Calls an objective written for Optuna with a trial that behaves like `optuna.trial.Trial`.

The trial and its `study` have what an objective uses in a process of its own. An attribute that
needs Optuna's study raises an error with the rule and the remedy. Optuna is not imported here: the
worker has it only if the objective's own module imports it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.outcomes import PrunedWithoutReports, is_optuna_pruning
from automl.in_trial.reports.report_values import MAX_TAG_CHARACTERS, parse_metric_value
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import (
    TrialContext,
    TrialInterrupted,
    TrialPruned,
    UnfitObjectiveError,
    running_trial,
)
from automl.objectives.optuna_objective.suggestion_entries import (
    CategoricalChoices,
    float_entry,
    int_entry,
)
from automl.record.texts import cut_text
from automl.trial import (
    Direction,
    ParamAnswer,
    ParamQuestion,
    ParamRefusal,
    ParamsNotSuggested,
    ParamValue,
    SpaceEntry,
    Verdict,
)


class NotInATrialError(AttributeError):
    """Raised when an objective uses an attribute of Optuna's that its process does not have.

    It is an AttributeError, so that `hasattr` returns False.
    """


_OTHERS = "a trial has no part in the others' results; decide by its own reports"
_STORAGE = (
    'for Lightning under DDP give automl.integrations.lightning.Report(trial, "val_loss") in place '
    "of Optuna's callback"
)
_LIMITS = (
    'note the value with trial.set_user_attr("seconds", 3.2), and limit it: '
    "study.constraints={seconds: 5}"
)
_REMEDIES = {
    "trial.storage": _STORAGE,
    "trial._trial_id": _STORAGE,
    "trial.study._storage": _STORAGE,
    "pickling trial": _STORAGE,
    "trial.study.best_params": _OTHERS,
    "trial.study.best_trial": _OTHERS,
    "trial.study.best_value": _OTHERS,
    "trial.study.get_trials": _OTHERS,
    "trial.study.trials": _OTHERS,
    "trial.study.stop": "study.n_trials, study.timeout_seconds and study.stop_value set the end",
    "trial.study.optimize": "the sweep calls the objective",
    "trial.study.enqueue_trial": "what is tried first is set by study.enqueue",
    "trial.study.set_user_attr": "note it with trial.set_user_attr",
    "trial.set_constraint": _LIMITS,
    "trial.constraints": _LIMITS,
}


def not_in_trial_error(name: str, there: str) -> NotInATrialError:
    """Return the error for `name` (`trial.storage`); `there` lists the attributes that exist."""
    remedy = _REMEDIES.get(name)
    return NotInATrialError(
        f"{name}: a trial trains in a process of its own, away from Optuna's study, and has "
        f"{there}{'.' if remedy is None else f'; {remedy}.'}"
    )


class OptunaStudyView:
    """Stands for `trial.study`, which is in another process, and has only its directions.

    Callbacks of Optuna's compare the direction with the one of their metric.
    """

    def __init__(self, directions: Sequence[Direction]) -> None:
        self._directions = directions

    @property
    def direction(self) -> Any:
        """The direction of the first metric."""
        return self.directions[0]

    @property
    def directions(self) -> list[Any]:
        """The directions as Optuna's `StudyDirection`, if the process has imported Optuna."""
        optuna_study = sys.modules.get("optuna.study")
        if optuna_study is None:
            return list(self._directions)
        return [getattr(optuna_study.StudyDirection, d.name.upper()) for d in self._directions]

    def __getattr__(self, name: str) -> Any:
        raise not_in_trial_error(f"trial.study.{name}", "direction and directions")


class OptunaTrial:
    """One trial with the methods of `optuna.trial.Trial`, for use in one thread.

    A `suggest_…` that the sweep has not foreseen asks the sweep. Reports are values of
    `study.metric`. They are compared with other trials only at the pruner's rungs. Between rungs
    `should_prune` costs next to nothing; at a rung it waits for the verdict on the last report.
    """

    def __init__(self, record: TrialReports) -> None:
        self._record = record
        self._params: dict[str, Any] = {}
        self._user_attrs: dict[str, Any] = {}
        self._reported: set[int] = set()
        self._pruned = False
        goal = record.goal
        self._study = OptunaStudyView((goal.direction, *goal.more_directions))
        self.datetime_start: datetime | None = datetime.now()

    # --- params ---

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
    ) -> float:
        return float(self._suggest(name, float_entry(low, high, step=step, log=log)))

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        return self.suggest_float(name, low, high, step=q)

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        return int(self._suggest(name, int_entry(low, high, step=step, log=log)))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        categories = CategoricalChoices.from_choices(name, choices)
        return self._suggest(name, categories.entry, categories)

    @property
    def params(self) -> dict[str, Any]:
        """The params that were suggested so far, by name."""
        return dict(self._params)

    # --- reports ---

    def report(self, value: float, step: int) -> None:
        """Report a value of `study.metric`.

        Raises TypeError for a value or step that is no number, and TrialInterrupted if the sweep
        stops. Pruning raises nothing here.
        """
        number, parsed_step = _value(value, f"report(value={value!r})"), _step(step)
        if parsed_step in self._reported:
            warnings.warn(
                f"step {parsed_step} was reported before: this value is ignored", stacklevel=2
            )
            return
        self._reported.add(parsed_step)
        try:
            self._record.report(parsed_step, {self._record.goal.metric: number}, None, None)
        except TrialPruned:  # the objective asks `should_prune`, or continues
            self._remember_pruning()

    def should_prune(self) -> bool:
        """Return whether to raise `optuna.TrialPruned`, judged by all reports so far."""
        verdict = Verdict.GO_ON
        if not self._pruned and self._record.line is not None:
            verdict = self._record.line.verdict(self.number)
        if verdict is Verdict.STOP:
            raise TrialInterrupted("the sweep stops")
        self._pruned |= verdict is Verdict.PRUNE
        return self._pruned

    # --- the rest ---

    @property
    def number(self) -> int:
        return self._record.spec.trial

    def set_user_attr(self, key: str, value: Any) -> None:
        """Set a tag of the trial's run in MLflow, as text; a text that is too long is cut.

        A number with the name of a further metric or limit of the study is its value, too.
        """
        self._user_attrs[key] = value
        if key in self._record.goal.more_metrics:
            self._record.note_metric(key, _value(value, f"set_user_attr({key!r}, {value!r})"))
        try:
            self._record.set_tag(key, cut_text(str(value), MAX_TAG_CHARACTERS))
        except ValueError as error:  # Optuna accepts such a key or value
            warnings.warn(f"set_user_attr({key!r}) is not kept: {error}", stacklevel=2)

    @property
    def user_attrs(self) -> dict[str, Any]:
        return dict(self._user_attrs)

    @property
    def study(self) -> OptunaStudyView:
        return self._study

    def __getattr__(self, name: str) -> Any:
        raise not_in_trial_error(
            f"trial.{name}",
            "suggest_…, report, should_prune, set_user_attr, user_attrs, params, number, "
            "datetime_start and study.direction",
        )

    def __reduce__(self) -> Any:
        """Raise an error: the trial stays in this process, and Lightning's ranks have others."""
        raise not_in_trial_error("pickling trial", "its line to the sweep there alone")

    # --- for the session ---

    def report_unused_params(self) -> None:
        """Tell the sweep, after training, which params were drawn but never asked for."""
        unused = tuple(n for n in self._record.spec.params if n not in self._params)
        if unused and self._record.line is not None:
            self._record.line.ask(ParamsNotSuggested(self.number, unused))

    def _suggest(
        self, name: str, entry: SpaceEntry, categories: CategoricalChoices | None = None
    ) -> Any:
        if not isinstance(name, str):
            raise TypeError(f"suggest({name!r}): the name of a param is a string.")
        if name not in self._params:
            value = self._param_value(name, entry)
            self._params[name] = value if categories is None else categories.choice(value)
        return self._params[name]

    def _param_value(self, name: str, entry: SpaceEntry) -> ParamValue:
        spec = self._record.spec
        if spec.entries.get(name) == entry or (self._record.line is None and name in spec.params):
            if self._record.line is not None and name in spec.drawn_ahead:
                self._record.emit_suggested(name)
            return spec.params[name]
        if self._record.line is None:
            raise ValueError(
                f"suggest {name!r}: nobody draws params here; write it: space.{name}=…"
            )
        reply = self._record.line.ask(ParamQuestion(self.number, name, entry))
        match reply:
            case ParamAnswer(value):
                self._record.spec = replace(spec, params={**spec.params, name: value})
                return value
            case ParamRefusal(cause):
                raise ValueError(cause)
        raise TrialInterrupted("the sweep stops")

    def _remember_pruning(self) -> None:
        self._pruned = True
        self._record.verdict = Verdict.GO_ON  # later reports of the objective still count


def register_as_optuna_trial() -> None:
    """Make `isinstance(trial, optuna.trial.Trial)` hold, if the process has imported Optuna."""
    optuna_trial = sys.modules.get("optuna.trial")
    if optuna_trial is not None:
        optuna_trial.Trial.register(OptunaTrial)


def _value(value: object, call: str) -> float:
    """Return a value as float; Optuna also takes texts and truth values. `call` told it."""
    try:
        return float(value) if isinstance(value, str | bool) else parse_metric_value("value", value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{call}: a {type(value).__name__} is no number; give a float.") from error


def _step(step: object) -> int:
    try:
        return int(step)  # type: ignore[call-overload,no-any-return]  # the except clause is the check
    except (TypeError, ValueError) as error:
        raise TypeError(f"report(step={step!r}): a step is a whole number from 0.") from error


class OptunaObjective:
    """Calls the user's function with an `OptunaTrial`, made from a session's `TrialContext`."""

    def __init__(self, function: Callable[[Any], object]) -> None:
        self._function = function
        register_as_optuna_trial()

    def __call__(self, context: TrialContext) -> object:
        """Call the function, and return its value, or several by name. Raises what it raises."""
        record = cast(TrialReports, context._record)
        trial = OptunaTrial(record)
        try:
            with running_trial(context):
                returned = self._function(trial)
        except TrialPruned:  # a callback of `automl.integrations` raised it
            trial.report_unused_params()
            raise
        except Exception as error:
            if not is_optuna_pruning(error):
                raise
            if not record.n_reports:
                raise PrunedWithoutReports(str(error)) from error
            trial.report_unused_params()
            raise
        trial.report_unused_params()
        return _named_values(returned, record.goal)


def _named_values(returned: object, goal: StudyGoal) -> object:
    """Return the one value that an objective returned, or several by the names of their metrics.

    Optuna also takes a sequence of one value, and a text or a truth value as the number it is.
    """
    if isinstance(returned, Sequence) and not isinstance(returned, str):
        if goal.several and len(returned) == len(goal.several):
            return dict(zip(goal.several, map(_as_number, returned), strict=True))
        if len(returned) != 1:
            raise UnfitObjectiveError(
                f"the objective returned {len(returned)} values, and study.metric names "
                f"{len(goal.several) or 1}: name each, study.metric=[loss,score] "
                "study.direction=[minimize,maximize], or return one number, such as a weighted "
                "sum of them."
            )
        returned = returned[0]
    return _as_number(returned)


def _as_number(returned: object) -> object:
    """Return a text or a truth value as the number it is, and anything else as it is."""
    try:
        return float(returned) if isinstance(returned, str | bool) else returned
    except ValueError:
        return returned
