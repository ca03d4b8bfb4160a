"""How an objective is called: with the trial, with its params by name, or with both.

    train(trial)                    as ever, whatever the one argument is called
    train(lr, width)                params by name; `trial.params` is not looked at
    train(lr, width, *, trial)      both

An argument named `trial`, or annotated as `automl.TrialContext`, is the trial. Without one it is
the first, where no other must be given and none is a param of the space; unless its annotation
says that it is a number or a string. All others are params.

What an objective says of itself before the first trial.

A function that was given to `automl.sweep`: sent to workers as bytes, and written nowhere.

The process that calls keeps the function itself; another one has the bytes, and makes the function
of them when it is wanted, not before: what is imported then may look for its device.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Collection
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from automl.errors import ConfigError
from automl.objectives.trial_context import TrialContext, declared_arguments


@dataclass(frozen=True)
class ObjectiveDeclaration:
    """What an objective takes and reports; None where it did not say."""

    params: tuple[str, ...] | None
    required: tuple[str, ...]
    """Those of `params` that must be in the space."""
    metrics: tuple[str, ...] | None
    always: tuple[str, ...] = ()
    """Those that every trial must have."""


_TRIAL = "trial"
_ANNOTATIONS = (TrialContext, "TrialContext", "automl.TrialContext")
_VALUES = (bool, int, float, str, "bool", "int", "float", "str")
"""Annotations of what can only be a param."""
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class ObjectiveCall:
    """What a function is called with."""

    trial: str | None = None
    """The argument that is given the trial; None: none by name."""
    trial_first: bool = False
    """The trial is given by place, and first."""
    named: tuple[str, ...] = ()
    """Arguments that are params."""
    required: tuple[str, ...] = ()
    """Those of them without a default."""
    any_named: bool = False
    """It takes whatever params there are (`**params`)."""

    @property
    def params(self) -> tuple[str, ...] | None:
        """The params that it can make use of; None: any."""
        sees_trial = self.trial is not None or self.trial_first
        return None if sees_trial or self.any_named else self.named

    def __call__(self, function: Callable[..., Any], trial: TrialContext) -> object:
        """What the function returns for a trial."""
        given: dict[str, Any] = {
            name: value
            for name, value in trial.params.items()
            if self.any_named or name in self.named
        }
        if self.trial is not None:
            given[self.trial] = trial
        return function(trial, **given) if self.trial_first else function(**given)


def objective_call(
    function: Callable[..., Any], space: Collection[str], what: str
) -> ObjectiveCall:
    """How `function` is called in trials of the params `space`.

    Raises ConfigError, with `what` as the setting that names the function, where it cannot be.
    """
    try:
        arguments = tuple(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):  # a builtin without a signature: the first trial will tell
        return ObjectiveCall(trial_first=True)
    by_name = [a for a in arguments if a.kind in _BY_NAME]
    trial = next((a for a in by_name if _is_trial(a)), None)
    first = _first(arguments, space) if trial is None else None
    named = [a for a in by_name if a not in (trial, first)]
    placed = [a for a in arguments if a.kind is Parameter.POSITIONAL_ONLY and a is not first]
    if any(a.default is Parameter.empty for a in placed):
        raise ConfigError(
            f"{what}: its argument {placed[0].name} can only be given by place, and params are "
            "given by name. Take the / out of its signature."
        )
    return ObjectiveCall(
        trial=None if trial is None else trial.name,
        trial_first=first is not None,
        named=tuple(a.name for a in named),
        required=tuple(a.name for a in named if a.default is Parameter.empty),
        any_named=any(a.kind is Parameter.VAR_KEYWORD for a in arguments)
        and (first is None or first.kind is not Parameter.VAR_POSITIONAL),
    )


def _is_trial(argument: Parameter) -> bool:
    return argument.name == _TRIAL or argument.annotation in _ANNOTATIONS


def _first(arguments: tuple[Parameter, ...], space: Collection[str]) -> Parameter | None:
    """The argument that takes the trial by its place; None: none does."""
    if not arguments or arguments[0].kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        return None
    first, *others = arguments
    if first.kind is Parameter.VAR_POSITIONAL:  # a wrapper's, most often
        return None if any(a.kind in _BY_NAME for a in others) else first
    if first.kind is Parameter.POSITIONAL_ONLY:
        return first
    if first.name in space or any(_is_required(a) for a in others) or first.annotation in _VALUES:
        return None
    return None if any(a.name in space for a in others) else first


def _is_required(argument: Parameter) -> bool:
    is_one = argument.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return is_one and argument.default is Parameter.empty


def declaration_of_function(
    function: Callable[..., Any], space: Collection[str], what: str
) -> ObjectiveDeclaration:
    """What a function takes and reports: its decorator's word, else its signature's.

    Raises ConfigError as `objective_call` does.
    """
    declared, call = declared_arguments(function), objective_call(function, space, what)
    if declared.params is None:
        return ObjectiveDeclaration(call.params, call.required, declared.metrics, call.required)
    taken = (*declared.params, *declared.optional)
    required = tuple(dict.fromkeys((*declared.params, *call.required)))
    return ObjectiveDeclaration(taken, required, declared.metrics, call.required)


class CalledFunction:
    """A function of the caller's. Picklable, where it was pickled."""

    def __init__(
        self,
        function: Callable[..., Any],
        pickled: bytes | None,
        *,
        changed: bool = False,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._function: Callable[..., Any] | None = function
        self._pickled = pickled
        """By cloudpickle, whose bytes `pickle` reads; None: it stays in this process."""
        self.changed = changed
        """The study goes on with it, even if it was begun with another."""
        self.notes = notes
        """What people should know of it."""

    def __getstate__(self) -> dict[str, Any]:
        assert self._pickled is not None, "a function that no other process is sent"
        return {"_function": None, "_pickled": self._pickled, "changed": False, "notes": ()}

    def load(self, name: str) -> Callable[..., Any]:
        """The function, whose name is for people. Raises ConfigError where it cannot be had."""
        if self._function is None:
            assert self._pickled is not None, "it has one or the other"
            try:
                self._function = pickle.loads(self._pickled)
            except Exception as error:  # what it refers to is imported, and may raise anything
                raise ConfigError(
                    f"{name} cannot be had in a worker process: {type(error).__name__}: {error}. "
                    "What it imports must be importable there, too: install it, or put it into a "
                    "file beside the caller's; or train in the caller's process with "
                    'overrides=["execution=inline"].'
                ) from error
            self._pickled = None  # the same again, and maybe large
        assert self._function is not None
        return self._function
