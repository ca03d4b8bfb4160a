"""`automl.sweep`: a sweep called from Python, composed and run as `python -m automl` does.

The function travels to workers as bytes, and the study keeps a name and digests of it. Here are
only the ways in and out: arguments become overrides, exit codes become exceptions.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from automl.api.composing import composed
from automl.api.functions import file_of, name_of, parts_of
from automl.api.handle import StudyHandle
from automl.api.pickling import pickled, size_notes
from automl.cli.compose import folder_of_studies
from automl.cli.space import is_about_space, override_text
from automl.config import ExecutionKind
from automl.errors import AutoMLError, ConfigError, TrialsLeftBehindError
from automl.record.directory import make_name
from automl.record.studies import study_names
from automl.training.called import CalledFunction

_INTERRUPTED, _TERMINATED = 130, 143


def sweep(
    train: Callable[..., Any],
    space: Mapping[str, Any] | None = None,
    *,
    n_trials: int | None = None,
    name: str | None = None,
    overrides: Sequence[str] = (),
    changed: bool = False,
) -> StudyHandle:
    """Search `space` for the params with which `train` is best, in up to `n_trials` trials.

    `train` is any callable that takes the trial, params by name, or both (a lambda, a closure, a
    method, a function of a notebook or of a script). `space` and `overrides` are written as on the
    command line: `space={"lr": {"low": 1e-4, "high": 1e-1, "log": True}}`,
    `overrides=["pruner=median"]`. With the `name` of a study that is there it goes on, by its own
    settings where none are given; a function that has changed since is refused, unless it is
    `changed=True`.

    Returns when all trials have ended. Raises ConfigError before the first trial, SweepFailedError
    where none succeeded, other AutoMLErrors for what broke, and KeyboardInterrupt after Ctrl-C; the
    same call goes on with the study then.
    """
    if not callable(train):
        raise ConfigError(
            f"automl.sweep({train!r}): give a function, not a {type(train).__name__}."
        )
    exists = name is not None and name in study_names(folder_of_studies(overrides))
    if space is None and not exists and not any(is_about_space(line) for line in overrides):
        raise ConfigError(
            "automl.sweep: a new study needs a space, such as "
            'space={"lr": {"low": 1e-4, "high": 1e-1, "log": True}}.'
        )
    lines = [*_overrides(space, n_trials, name or make_name()), *overrides, *_objective(train)]
    made = composed("resume" if exists else "sweep", lines)
    config = made.config
    inline = config.execution.kind is ExecutionKind.inline
    called = _called(train, inline=inline, changed=changed)
    from automl.commands.sweep import carry_out

    assert config.study.name is not None, "given above"
    try:
        code = carry_out(config, made.stored_config, resume=exists, called=called)
    except TrialsLeftBehindError as left:
        raise AutoMLError(
            f"study {config.study.name}: trials that do not stop run on in threads of this "
            "process, and the study stays locked until it ends: restart the kernel, or end the "
            "program."
        ) from left
    if code:
        _raise_for(code, config.study.name)
    return StudyHandle(Path(config.study.dir).absolute() / config.study.name)


def _called(train: Callable[..., Any], *, inline: bool, changed: bool) -> CalledFunction:
    if inline:
        return CalledFunction(train, None, changed=changed)
    made = pickled(train)
    return CalledFunction(train, made, changed=changed, notes=size_notes(train, len(made)))


def _overrides(space: Mapping[str, Any] | None, n_trials: int | None, name: str) -> list[str]:
    """The arguments as they would be typed."""
    lines = [f"study.name={override_text(name)}"]
    if n_trials is not None:
        lines.append(f"study.n_trials={n_trials}")
    if space is not None:
        lines.append(f"space={override_text(_plain(space))}")
    return lines


def _objective(train: Callable[..., Any]) -> list[str]:
    parts = [f"{name}={digest}" for name, digest in parts_of(train).items()]
    return [
        "objective.kind=called",
        f"objective.target={override_text(name_of(train))}",
        f"objective.file={override_text(file_of(train))}",
        f"objective.parts={override_text(parts)}",
    ]


def _plain(value: Any) -> Any:
    """Nested values as Hydra takes them: numpy's numbers and tuples too."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    return value.item() if hasattr(value, "item") else value


def _raise_for(code: int, name: str) -> None:
    """What the caller's own program expects of the signal that ended the sweep."""
    if code == _TERMINATED:
        signal.raise_signal(signal.SIGTERM)
        raise SystemExit(code)  # whoever called has it handled in another way
    assert code == _INTERRUPTED, f"{code} is raised as an error by the sweep itself"
    raise KeyboardInterrupt(f"study {name} is interrupted; the same call goes on with it")
