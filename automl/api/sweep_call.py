"""`automl.sweep`: a sweep called from Python, composed and run as `python -m automl` does.

This file turns arguments into overrides and exit codes into exceptions; running is left to
`automl/commands/sweep.py`. A function travels to workers as bytes, and the study keeps a name and
digests of it. Settings that a Hydra application composed take the place of `conf/`.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from automl.api.pickled_function import (
    calls_suggest,
    function_file,
    function_name,
    part_settings,
    pickle_function,
    pickle_size_notes,
)
from automl.api.python_values import (
    lines_of,
    lines_of_settings,
    store_space,
    take_former,
)
from automl.api.study_handle import COMPOSE_LOCK, StudyHandle, compose_for_call
from automl.cli.base import find_studies_folder
from automl.cli.compose import ComposedConfig
from automl.cli.hydra_application import application_study_name
from automl.cli.short_words import SHORT_WORDS
from automl.cli.space_overrides import is_about_space, override_text
from automl.config import ExecutionKind
from automl.errors import AutoMLError, ConfigError, TrialsLeftBehindError
from automl.objectives.function_call import CalledFunction
from automl.record.signal_receiver import INTERRUPTED_CODE, TERMINATED_CODE, StopSignal
from automl.record.studies import study_names
from automl.record.study_directory import make_study_name
from automl.search.optuna_address import ADDRESS_FORMS, parse_optuna_source


def sweep(
    train: Callable[..., Any] | str | Mapping[Any, Any],
    space: Mapping[str, Any] | None = None,
    *,
    from_: str | PathLike[str] | None = None,
    config: Mapping[Any, Any] | None = None,
    n_trials: int | None = None,
    timeout: float | str | None = None,
    metric: str | Sequence[str] | None = None,
    direction: str | Sequence[str] | Mapping[str, str] | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    sampler: str | None = None,
    pruner: str | None = None,
    name: str | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    changed: bool = False,
    verbose: bool = True,
    **others: object,
) -> StudyHandle:
    """Search `space` for the params with which `train` is best, in up to `n_trials` trials.

    `train` is any callable that takes the trial, params by name, or both (a lambda, a closure, a
    method, a function of a notebook or of a script); an objective written for Optuna, which needs
    no space; or the text that `train=` has on a line: "my.py:train", "python main.py".

    `space` has an entry per param. A range is a text as on a line, a tuple of two numbers, or a
    dict: `{"lr": "log:1e-4..1e-1", "depth": (2, 8), "decay": {"low": 0, "high": 1}}`, both ends
    included. A list is choices, `{"width": [8, 32]}`, and a single value is fixed. The values are
    taken as they are; a param whose name is no Python name is in `trial.params`.

    `from_` is the address of a study that Optuna made, "old.db:NAME" or
    "sqlite:///old.db:NAME": a new study begins with its trials, by its space and direction.

    `n_trials` counts the study's trials in all (20), and `timeout` ends the sweep: seconds, or a
    text such as "10min" or "1h30min". `seed` seeds what is drawn (0).
    `metric` names the value that is optimised (val_loss), and so the number that `train` returns;
    `direction` is "minimize" or "maximize". Both may be lists, of several metrics. `sampler` is
    "auto", "gp", "tpe", "random", "grid", "qmc", "cmaes", "nsga2" or "nsga3"; `pruner` is "none",
    "median", "halving" or "asha". All other settings are `overrides`, as on the command line,
    `["training.epochs=5"]`, or as a dict, `{"training.epochs": 5}`.

    With the `name` of an existing study the call resumes it, by the study's own settings where none
    are given; a function that has changed since is refused, unless `changed=True`. With
    `verbose=False` nothing is printed.

    In a Hydra application that composed our settings (`automl.register_configs()`),
    `automl.sweep(cfg.automl)` runs what they say, their objective included, and
    `automl.sweep(train, config=cfg.automl)` runs `train` by them; the other arguments win over
    them. With the name of an existing study the call resumes it, by the settings given.

    Returns when all trials have ended. Raises ConfigError before the first trial, SweepFailedError
    where none succeeded, other AutoMLErrors for what broke, and KeyboardInterrupt after Ctrl-C;
    the same call then resumes the study.
    """
    called_seconds = time.monotonic()
    arguments: dict[str, object] = {
        "n_trials": n_trials,
        "timeout": timeout,
        "metric": metric,
        "direction": direction,
        "seed": seed,
        "epochs": epochs,
        "sampler": sampler,
        "pruner": pruner,
    }
    arguments = take_former(sweep, arguments, others)
    typed_overrides = lines_of(overrides)
    _check_once(
        typed_overrides,
        {"study.name": name} | {SHORT_WORDS[key]: arguments[key] for key in arguments},
    )
    function, application = _function_and_config(train, config)
    objective = [] if function is None else _objective_overrides(function, application)
    if isinstance(train, str):
        objective = lines_of({"train": train})  # a `${…}` in it is the program's own
    with COMPOSE_LOCK:
        if application is not None:
            name = name or application_study_name(application)
        exists = application is None and name is not None and study_exists(name, typed_overrides)
        needs_space = application is None and not exists and space is None
        needs_space = needs_space and not any(map(is_about_space, typed_overrides))
        if needs_space and "objective.suggests=true" in objective:
            objective.append("space=empty")
        elif needs_space and from_ is None:
            raise ConfigError(
                'automl.sweep: a new study needs a space, such as space={"lr": "log:1e-4..1e-1"}; '
                "only an objective written for Optuna, which calls trial.suggest_…, needs none."
            )
        lines = [
            f"study.name={override_text(name or make_study_name())}",
            *lines_of_settings(arguments),
        ]
        lines += [] if space is None else [store_space(space)]
        lines += [] if from_ is None or exists else [_from_word(from_)]
        composed = compose_for_call(
            "resume" if exists else "sweep", [*lines, *typed_overrides, *objective], application
        )
    return run_composed_sweep(
        composed,
        function,
        resume=exists,
        changed=changed,
        called_seconds=called_seconds,
        verbose=verbose,
    )


def _from_word(address: str | PathLike[str]) -> str:
    """Return the word by which a study begins with one of Optuna's. Raises ConfigError."""
    text = os.fspath(address)
    if parse_optuna_source(text) is None:
        raise ConfigError(
            f"from_={text!r}: must be the address of a study of Optuna's: {ADDRESS_FORMS}."
        )
    return f"from={text}"


def _function_and_config(
    train: object, config: object
) -> tuple[Callable[..., Any] | None, object | None]:
    """Return the function that trains, and the config of an application; either may be None."""
    if callable(train):
        return train, config
    if isinstance(train, str):
        return None, config
    if isinstance(train, Mapping) and config is None:
        return None, train
    ours = ", or what a Hydra application composed of ours, automl.sweep(cfg.automl)"
    raise ConfigError(
        f"automl.sweep({train!r}): give a function, not a {type(train).__name__}{ours}."
    )


def _check_once(overrides: Sequence[str], arguments: Mapping[str, object]) -> None:
    """Raise ConfigError where an override repeats an argument: one of the two would be ignored
    silently."""
    for line in overrides:
        key = line.partition("=")[0].lstrip("+")
        if arguments.get(key) is not None:
            argument = f"{key.rpartition('.')[2]}={arguments[key]!r}"
            raise ConfigError(
                f"automl.sweep: {key} is given in two places, {argument} and overrides=[{line!r}]. "
                "Leave one out."
            )


def study_exists(name: str, overrides: Sequence[str]) -> bool:
    """Return whether a study of that name exists."""
    return name in study_names(find_studies_folder(overrides))


def run_composed_sweep(
    composed: ComposedConfig,
    function: Callable[..., Any] | None = None,
    *,
    resume: bool,
    changed: bool = False,
    called_seconds: float | None = None,
    verbose: bool = True,
    from_python: bool = True,
) -> StudyHandle:
    """Run the sweep to its end; its time counts from `called_seconds` (monotonic). `function` is
    the objective, or the metric of a table. `from_python`: the same call resumes it, and no command
    does.

    Raises what `sweep` does.
    """
    config = composed.config
    assert config.study.name is not None, "given above"
    inline = config.execution.kind is ExecutionKind.inline
    called = (
        None
        if function is None
        else _called_function(
            function, inline=inline and not config.study.metric_parts, changed=changed
        )
    )
    from automl.commands.sweep import load_and_run_sweep

    shown = contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO())
    try:
        with shown:
            code = load_and_run_sweep(
                config,
                composed.stored_config,
                resume=resume,
                called=called,
                from_python=from_python,
                called_seconds=called_seconds,
            )
    except StopSignal as stopped:
        code = stopped.exit_code
    except TrialsLeftBehindError as left:
        raise AutoMLError(
            f"study {config.study.name}: trials that do not stop run on in threads of this "
            "process, and the study stays locked until it ends: restart the kernel, or end the "
            "program."
        ) from left
    if code:
        _raise_for(code, config.study.name)
    return StudyHandle(Path(config.study.dir).absolute() / config.study.name)


def _called_function(train: Callable[..., Any], *, inline: bool, changed: bool) -> CalledFunction:
    if inline:
        return CalledFunction(train, None, changed=changed)
    pickled = pickle_function(train)
    return CalledFunction(
        train, pickled, changed=changed, notes=pickle_size_notes(train, len(pickled))
    )


def _objective_overrides(train: Callable[..., Any], application: object | None) -> list[str]:
    # A function that holds the application's config holds these settings, too.
    parts = part_settings(train, application)
    asks = ["objective.suggests=true"] if calls_suggest(train) else []
    return [
        *asks,
        "objective.kind=called",
        f"objective.target={override_text(function_name(train))}",
        f"objective.file={override_text(function_file(train))}",
        f"objective.parts={override_text(parts)}",
    ]


def _raise_for(code: int, name: str) -> None:
    """Raise what the caller's program expects for the signal that ended the sweep."""
    if code == TERMINATED_CODE:
        signal.raise_signal(signal.SIGTERM)
        raise SystemExit(code)  # the caller's program handles SIGTERM without ending
    assert code == INTERRUPTED_CODE, f"{code} is raised as an error by the sweep itself"
    raise KeyboardInterrupt(f"study {name} is interrupted; the same call goes on with it")
