"""How an objective is called: with the trial, with its params by name, or with both.

    train(trial)                    the trial, whatever the one argument is called
    train(lr, width)                params by name; `trial.params` is not looked at
    train(lr, width, *, trial)      both

An argument named `trial`, or annotated as `automl.TrialContext`, is the trial. Without one it is
the first, where no other must be given and none is a param of the space; unless its annotation
says that it is a number or a string. All others are params. A first argument whose name is nearly
that of a param, in a function that uses nothing that a trial has, is a misspelt param.

What an objective says of itself before the first trial.

A function that was given to `automl.sweep`: sent to workers as bytes, and written nowhere.

The process that calls keeps the function itself; another one has the bytes, and makes the function
of them when it is wanted, not before: what is imported then may look for its device.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import pickle
from collections.abc import Callable, Collection
from dataclasses import dataclass
from inspect import Parameter
from types import CodeType
from typing import Any

from automl.errors import ConfigError
from automl.objectives.trial_context import TrialContext, UnfitObjectiveError, declared_arguments


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
_TRIAL_ATTRIBUTES = frozenset(
    [
        "number",
        "params",
        "device",
        "devices",
        "seed",
        "surveying",
        "refit",
        "directory",
        "restore",
        "report",
        "set_tag",
    ]
)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class ObjectiveCall:
    """What a function is called with."""

    trial: str | None = None
    """The argument that is given the trial; None: none by name."""
    trial_first: bool = False
    """The trial is given by place, and first."""
    guessed: str | None = None
    """The name of the first argument, where nothing but its place says that it is the trial."""
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
        if not self.trial_first:
            return function(**given)
        try:
            returned = function(trial, **given)
        except TypeError as error:
            if self.guessed is None or TrialContext.__name__ not in str(error):
                raise
            raise UnfitObjectiveError(f"{self._misfit(trial)} ({error})") from error
        if returned is trial:
            raise UnfitObjectiveError(f"{self._misfit(trial)} It returned that.")
        return returned

    def _misfit(self, trial: TrialContext) -> str:
        """Return what is wrong with a function that takes its trial for a param."""
        argument = self.guessed or _TRIAL
        return (
            f"the objective takes {argument}, the space has {', '.join(trial.params)}: {argument} "
            "was given the trial. Give arguments the names of params, or look them up in "
            f"{argument}.params."
        )


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
    guessed = None
    if first is not None and first.kind in _BY_NAME and not _may_use_trial(function):
        if near := difflib.get_close_matches(first.name, space, n=1):
            raise ConfigError(
                f"{what}: takes {first.name}, the space has {near[0]}. Give both one name; an "
                "argument that is meant to be given the trial is called trial."
            )
        guessed = first.name
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
        guessed=guessed,
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


def _may_use_trial(function: Callable[..., Any]) -> bool:
    """Return whether the code of a function has a name that a trial has, such as `params`.

    Returns True for a function whose code cannot be seen.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", getattr(type(function).__call__, "__code__", None))
    if code is None:
        return True
    codes = [code]
    while codes:
        code = codes.pop()
        if isinstance(code, CodeType):
            if not _TRIAL_ATTRIBUTES.isdisjoint(code.co_names):
                return True
            codes.extend(code.co_consts)
    return False


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
