"""Turns the arguments of `trial.suggest_…` into entries of a search space, and values back.

It also says what is known of an objective written for Optuna before its first trial. Neither Optuna
nor torch is imported.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from automl.errors import ConfigError
from automl.in_trial.trial_context import UnfitObjectiveError, declared_arguments
from automl.objectives.function_call import ObjectiveDeclaration
from automl.trial import LARGEST_INTEGER, ParamValue, SpaceEntry


@dataclass(frozen=True)
class CategoricalChoices:
    """The choices of a categorical param, with a label for each that a study can store.

    Optuna allows any object as a choice. An object that is no number, text, truth value or None
    gets its name or its `repr` as label, and the objective gets the object itself.
    """

    labels: tuple[ParamValue, ...]
    choices: tuple[Any, ...]

    @classmethod
    def from_choices(cls, name: str, choices: Sequence[Any]) -> CategoricalChoices:
        """Label the choices of the param `name`. Raises ValueError if two get the same label."""
        choices = tuple(choices)
        labels = tuple(map(_label, choices))
        repeated = [label for i, label in enumerate(labels) if label in labels[:i]]
        if repeated and not all(map(_is_plain, choices)):
            raise ValueError(
                f"suggest_categorical({name!r}): two choices are both called {repeated[0]!r}; "
                "choose among texts, and look the objects up by them."
            )
        return cls(labels, choices)

    @property
    def entry(self) -> SpaceEntry:
        return {"choices": list(self.labels)}

    def choice(self, value: ParamValue) -> Any:
        """Return the choice with this label, or the value itself if it is no label.

        A value that the user wrote into the space may be none of the labels.
        """
        for label, choice in zip(self.labels, self.choices, strict=True):
            if label == value and isinstance(label, bool) == isinstance(value, bool):
                return choice
        return value


def float_entry(low: float, high: float, *, step: float | None, log: bool) -> SpaceEntry:
    """Return the space entry for the arguments of `suggest_float`."""
    return _entry(float(low), float(high), None if step is None else float(step), log)


def int_entry(low: int, high: int, *, step: int, log: bool) -> SpaceEntry:
    """Return the space entry for the arguments of `suggest_int`; a step of 1 is left out.

    Raises UnfitObjectiveError for a range whose values a study cannot store exactly.
    """
    if max(abs(int(low)), abs(int(high))) > LARGEST_INTEGER:
        raise UnfitObjectiveError(
            f"suggest_int(low={low}, high={high}): whole numbers of a range go up to 2**53. "
            "Suggest a smaller one and scale it, or list the values with suggest_categorical."
        )
    return _entry(int(low), int(high), None if step == 1 else int(step), log)


def _entry(low: float, high: float, step: float | None, log: bool) -> SpaceEntry:
    return {"low": low, "high": high, "log": bool(log), "step": step}


def _is_plain(choice: object) -> bool:
    return choice is None or isinstance(choice, bool | int | float | str)


def _label(choice: object) -> ParamValue:
    """Return a label for any object, the same in each process."""
    if choice is None or type(choice) in (bool, int, float, str):
        return choice  # type: ignore[return-value]  # it is one of these
    if isinstance(choice, str):
        return str(choice)
    try:
        return operator.index(choice)  # type: ignore[arg-type]  # the except clause is the check
    except TypeError:
        pass
    if isinstance(choice, float):
        return float(choice)
    name = getattr(choice, "__qualname__", None)
    if name is not None:
        return f"{getattr(choice, '__module__', '')}.{name}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(choice))


def declaration_of_optuna_objective(
    function: Callable[..., Any], what: str
) -> ObjectiveDeclaration:
    """Return the declaration of an objective for Optuna: any params, none of them required.

    Raises ConfigError if it cannot be called with only a trial; `what` is the setting that names
    the function.
    """
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise ConfigError(
            f"{what}: {error}. Optuna calls an objective with one argument, the trial; bind others "
            "in your module: objective = functools.partial(train, data=…)."
        ) from error
    except ValueError:  # a builtin without a signature: the first trial will tell
        pass
    return ObjectiveDeclaration(None, (), declared_arguments(function).metrics)
