"""Decides how an objective is called: with the trial, with its params by name, or with both.

    train(trial)                    the trial, whatever the one argument is called
    train(lr, width)                params by name; the function does not use `trial.params`
    train(lr, width, *, trial)      both
    train(config)                   the params as a dict, as Ray Tune calls it

An argument named `trial`, or annotated as `automl.TrialContext`, takes the trial. Without such an
argument the first one takes it, if no other argument is required, none is a param of the space, and
its annotation is neither a number nor a string. A first argument that is called `config` or alike,
or annotated as a dict, takes the params in one dict. All other arguments are params. The first
argument is taken for a misspelt param if its name is close to one and the function uses nothing of
a trial.

The module also holds what an objective declares before the first trial, and the function that
`automl.sweep` was called with. Finding a function by its name is the work of `user_code.py`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import pickle
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from types import CodeType
from typing import Any

from automl.errors import ConfigError
from automl.in_trial.trial_context import (
    TrialContext,
    UnfitObjectiveError,
    declared_arguments,
    running_trial,
)


@dataclass(frozen=True)
class ObjectiveDeclaration:
    """The params that an objective takes and the metrics that it reports; None: undeclared."""

    params: tuple[str, ...] | None
    required: tuple[str, ...]
    """The names in `params` that must be in the space."""
    metrics: tuple[str, ...] | None
    always: tuple[str, ...] = ()
    """The params that every trial must have."""
    code: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Digests of the user's code by what it is: `objective.target`."""


_TRIAL = "trial"
_ANNOTATIONS = (TrialContext, "TrialContext", "automl.TrialContext")
_DICT_NAMES = ("config", "cfg", "params", "hparams", "hyperparameters")
"""Names of a first argument that takes all params as a dict."""
_DICT_ANNOTATION = re.compile(r"(\w+\.)*(dict|Dict|Mapping|MutableMapping)(\[.*\])?")
_VALUES = (bool, int, float, str, "bool", "int", "float", "str")
"""Annotations of arguments that can only be params."""
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
    """The way to call a function: which arguments take the trial, and which ones take params."""

    trial: str | None = None
    """The argument that takes the trial by its name; None: no argument does."""
    trial_first: bool = False
    """The trial is passed by position, as the first argument."""
    config: str | None = None
    """The argument that takes the params as one dict; None: no argument does."""
    guessed: str | None = None
    """The name of the first argument, if only its position says that it takes the trial."""
    named: tuple[str, ...] = ()
    """The arguments that are params."""
    required: tuple[str, ...] = ()
    """The arguments in `named` that have no default."""
    any_named: bool = False
    """The function takes any params (`**params`)."""

    @property
    def params(self) -> tuple[str, ...] | None:
        """The params that the function can use; None: any."""
        sees_trial = self.trial is not None or self.trial_first
        sees_all = sees_trial or self.any_named or self.config is not None
        return None if sees_all else self.named

    def __call__(self, function: Callable[..., Any], trial: TrialContext) -> object:
        """Call the function for a trial, and return what it returns."""
        arguments: dict[str, Any] = {
            name: value
            for name, value in trial.params.items()
            if self.any_named or name in self.named
        }
        if self.trial is not None:
            arguments[self.trial] = trial
        if self.config is not None:
            arguments[self.config] = dict(trial.params)
        with running_trial(trial):
            return self._call(function, trial, arguments)

    def _call(
        self, function: Callable[..., Any], trial: TrialContext, arguments: Mapping[str, Any]
    ) -> object:
        if not self.trial_first:
            return function(**arguments)
        try:
            returned = function(trial, **arguments)
        except TypeError as error:
            if self.guessed is None or TrialContext.__name__ not in str(error):
                raise
            raise UnfitObjectiveError(f"{self._misfit_message(trial)} ({error})") from error
        if returned is trial:
            raise UnfitObjectiveError(f"{self._misfit_message(trial)} It returned that.")
        return returned

    def _misfit_message(self, trial: TrialContext) -> str:
        """Return the message about a function that takes its trial for a param."""
        argument = self.guessed or _TRIAL
        return (
            f"the objective takes {argument}, the space has {', '.join(trial.params)}: {argument} "
            "was given the trial. Give arguments the names of params, look them up in "
            f"{argument}.params, or call it config, which is given a dict of them."
        )


def objective_call(
    function: Callable[..., Any], space: Collection[str], what: str
) -> ObjectiveCall:
    """Return how `function` is called in trials whose params are `space`.

    Raises ConfigError if it cannot be called; `what` is the setting that names the function.
    """
    try:
        arguments = tuple(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):  # a builtin without a signature: the first trial will tell
        return ObjectiveCall(trial_first=True)
    by_name = [a for a in arguments if a.kind in _BY_NAME]
    trial = next((a for a in by_name if _is_trial(a)), None)
    config = _first_for_params([a for a in arguments if a is not trial], space)
    has_first = trial is None and config is None
    first = _first_for_trial(arguments, space) if has_first else None
    guessed = None
    if first is not None and first.kind in _BY_NAME and not _may_use_trial(function):
        if near := difflib.get_close_matches(first.name, space, n=1):
            raise ConfigError(
                f"{what}: takes {first.name}, the space has {near[0]}. Give both one name; an "
                "argument that is meant to be given the trial is called trial."
            )
        guessed = first.name
    named = [a for a in by_name if a not in (trial, first, config)]
    placed = [a for a in arguments if a.kind is Parameter.POSITIONAL_ONLY and a is not first]
    if any(a.default is Parameter.empty for a in placed):
        raise ConfigError(
            f"{what}: its argument {placed[0].name} can only be given by place, and params are "
            "given by name. Take the / out of its signature."
        )
    return ObjectiveCall(
        trial=None if trial is None else trial.name,
        trial_first=first is not None,
        config=None if config is None else config.name,
        guessed=guessed,
        named=tuple(a.name for a in named),
        required=tuple(a.name for a in named if a.default is Parameter.empty),
        any_named=any(a.kind is Parameter.VAR_KEYWORD for a in arguments)
        and (first is None or first.kind is not Parameter.VAR_POSITIONAL),
    )


def _is_trial(argument: Parameter) -> bool:
    return argument.name == _TRIAL or argument.annotation in _ANNOTATIONS


def _first_for_params(arguments: Sequence[Parameter], space: Collection[str]) -> Parameter | None:
    """Return the first argument if it takes all params as a dict, else None."""
    if not arguments or arguments[0].kind not in _BY_NAME or arguments[0].name in space:
        return None
    first = arguments[0]
    annotation = first.annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    is_dict = _DICT_ANNOTATION.fullmatch(text) is not None
    return first if is_dict or first.name in _DICT_NAMES else None


def _first_for_trial(arguments: tuple[Parameter, ...], space: Collection[str]) -> Parameter | None:
    """Return the first argument if it takes the trial by its position, else None."""
    if not arguments or arguments[0].kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD):
        return None
    first, *others = arguments
    if first.kind is Parameter.VAR_POSITIONAL:  # mostly the `*args` of a wrapper
        return None if any(a.kind in _BY_NAME for a in others) else first
    if first.kind is Parameter.POSITIONAL_ONLY:
        return first
    if first.name in space or any(_is_required(a) for a in others) or first.annotation in _VALUES:
        return None
    return None if any(a.name in space for a in others) else first


def _may_use_trial(function: Callable[..., Any]) -> bool:
    """Return whether the code of a function uses a name that a trial has, such as `params`.

    A function whose code cannot be inspected counts as using one.
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
    is_single = argument.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return is_single and argument.default is Parameter.empty


def declaration_of_function(
    function: Callable[..., Any], space: Collection[str], what: str
) -> ObjectiveDeclaration:
    """Return what a function takes and reports, from its decorator, else from its signature.

    Raises ConfigError under the conditions of `objective_call`.
    """
    declared, call = declared_arguments(function), objective_call(function, space, what)
    if declared.params is None:
        return ObjectiveDeclaration(call.params, call.required, declared.metrics, call.required)
    accepted = (*declared.params, *declared.optional)
    required = tuple(dict.fromkeys((*declared.params, *call.required)))
    return ObjectiveDeclaration(accepted, required, declared.metrics, call.required)


class CalledFunction:
    """A function that the user passed to `automl.sweep`, or the metric passed to `automl.fit`.
    Workers get it as bytes; no file has it.

    The calling process keeps the function itself. Another process gets the bytes, and loads the
    function only when it is needed, because the modules imported then may look for their device.
    An instance without bytes cannot be pickled.
    """

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
        """The bytes that cloudpickle wrote, which `pickle` reads; None: it stays in this process.
        """
        self.changed = changed
        """The study goes on with this function, even if it was begun with another."""
        self.notes = notes
        """Notes about the function for the user."""

    def __getstate__(self) -> dict[str, Any]:
        assert self._pickled is not None, "a function that no other process is sent"
        return {"_function": None, "_pickled": self._pickled, "changed": False, "notes": ()}

    def load(self, name: str) -> Callable[..., Any]:
        """Return the function, which messages call `name`. Raises ConfigError if loading fails."""
        if self._function is None:
            assert self._pickled is not None, "it has the function or its bytes"
            try:
                self._function = pickle.loads(self._pickled)
            except Exception as error:  # the modules that it imports may raise anything
                raise ConfigError(
                    f"{name} cannot be had in a worker process: {type(error).__name__}: {error}. "
                    "What it imports must be importable there, too: install it, or put it into a "
                    "file beside the caller's; or train in the caller's process with "
                    'overrides=["execution=inline"].'
                ) from error
            self._pickled = None  # a second copy of the function, which may be large
        assert self._function is not None
        return self._function
