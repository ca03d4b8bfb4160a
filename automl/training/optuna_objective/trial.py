"""What an objective written for Optuna is called with: `optuna.trial.Trial` as far as it uses it.

Optuna is not imported here: the worker has it where the objective's own module imports it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from automl.record.texts import cut
from automl.training.objective import TrialInterrupted, TrialPruned
from automl.training.optuna_objective.entries import Categories, float_entry, int_entry
from automl.training.optuna_objective.missing import not_in_a_trial
from automl.training.optuna_objective.study_view import StudyView
from automl.training.reported import MAX_TAG_CHARACTERS
from automl.training.reports import TrialReports
from automl.trial import (
    Given,
    NotSuggested,
    ParamValue,
    Refused,
    SpaceEntry,
    Suggest,
    Verdict,
)


class OptunaTrial:
    """One trial; for one thread. A `suggest_…` that the sweep has not foreseen is a question to it.

    Reports are those of `study.metric`. Intermediate values are compared with other trials' at the
    pruner's rungs only; between them `should_prune` costs next to nothing, and at one it waits for
    the verdict on the report just made.
    """

    def __init__(self, record: TrialReports) -> None:
        self._record = record
        self._params: dict[str, Any] = {}
        self._user_attrs: dict[str, Any] = {}
        self._reported: set[int] = set()
        self._pruned = False
        self._study = StudyView(record.goal.direction)
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
        categories = Categories.of(name, choices)
        return self._suggest(name, categories.entry, categories)

    @property
    def params(self) -> dict[str, Any]:
        """Those that were suggested so far."""
        return dict(self._params)

    # --- reports ---

    def report(self, value: float, step: int) -> None:
        """Raises only what ends a trial because the sweep does, and for what is no number."""
        number, at = _value(value), _step(step)
        if at in self._reported:
            warnings.warn(f"step {at} was reported before: this value is ignored", stacklevel=2)
            return
        self._reported.add(at)
        try:
            self._record.report(at, {self._record.goal.metric: number}, None, None)
        except TrialPruned:  # the objective asks for it, or goes on
            self._hear_of_pruning()

    def should_prune(self) -> bool:
        """Whether to raise `optuna.TrialPruned`, by all that was reported."""
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
        return self._record.spec.number

    def set_user_attr(self, key: str, value: Any) -> None:
        """A tag of the trial's run in MLflow, as text; what is too long for one is cut."""
        self._user_attrs[key] = value
        try:
            self._record.set_tag(key, cut(str(value), MAX_TAG_CHARACTERS))
        except ValueError as error:  # to Optuna it is no error
            warnings.warn(f"set_user_attr({key!r}) is not kept: {error}", stacklevel=2)

    @property
    def user_attrs(self) -> dict[str, Any]:
        return dict(self._user_attrs)

    @property
    def study(self) -> StudyView:
        return self._study

    def __getattr__(self, name: str) -> Any:
        raise not_in_a_trial(
            f"trial.{name}",
            "suggest_…, report, should_prune, set_user_attr, user_attrs, params, number, "
            "datetime_start and study.direction",
        )

    def __reduce__(self) -> Any:
        """It belongs to this process; Lightning would pickle it for ranks in others."""
        raise not_in_a_trial("pickling trial", "its line to the sweep there alone")

    # --- for the session ---

    def tell_unasked(self) -> None:
        """The objective has trained: of what was drawn for it, what it did not ask for."""
        unasked = tuple(n for n in self._record.spec.params if n not in self._params)
        if unasked and self._record.line is not None:
            self._record.line.ask(NotSuggested(self.number, unasked))

    def _suggest(self, name: str, entry: SpaceEntry, categories: Categories | None = None) -> Any:
        if not isinstance(name, str):
            raise TypeError(f"suggest({name!r}): the name of a param is a string.")
        if name not in self._params:
            value = self._given(name, entry)
            self._params[name] = value if categories is None else categories.choice(value)
        return self._params[name]

    def _given(self, name: str, entry: SpaceEntry) -> ParamValue:
        spec = self._record.spec
        if spec.entries.get(name) == entry or (self._record.line is None and name in spec.params):
            return spec.params[name]
        if self._record.line is None:
            raise ValueError(
                f"suggest {name!r}: nobody draws params here; write it: space.{name}=…"
            )
        reply = self._record.line.ask(Suggest(self.number, name, entry))
        match reply:
            case Given(value):
                self._record.spec = replace(spec, params={**spec.params, name: value})
                return value
            case Refused(cause):
                raise ValueError(cause)
        raise TrialInterrupted("the sweep stops")

    def _hear_of_pruning(self) -> None:
        self._pruned = True
        self._record.verdict = Verdict.GO_ON  # what it reports from here on counts all the same


def be_optunas() -> None:
    """Have `isinstance(trial, optuna.trial.Trial)` hold, where somebody has imported that."""
    optuna_trial = sys.modules.get("optuna.trial")
    if optuna_trial is not None:
        optuna_trial.Trial.register(OptunaTrial)


def _value(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # the except clause is the check
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"report(value={value!r}): a {type(value).__name__} is no number; report a float."
        ) from error


def _step(step: object) -> int:
    try:
        return int(step)  # type: ignore[call-overload,no-any-return]  # the except clause is the check
    except (TypeError, ValueError) as error:
        raise TypeError(f"report(step={step!r}): a step is a whole number from 0.") from error
