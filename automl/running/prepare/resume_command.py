"""Returns how a study is resumed: by a command line, or by the call from Python that began it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path

from automl.config import (
    Config,
    ObjectiveKind,
    RefitArguments,
    RefitOrigin,
    StudyConfig,
)
from automl.config.checks import is_function_target
from automl.errors import ConfigError
from automl.objectives.function_call import CalledFunction
from automl.record.study_directory import study_command
from automl.record.study_files import REFITS_FOLDER, StudyFiles


def resume_command(config: Config, *, from_python: bool = False, **changed: object) -> str:
    """Return the command that resumes the study with `changed` settings of `study.`, or the same
    call if the sweep was called from Python."""
    if config.refit is not None:
        return _refit_line(config.study, refit_settings(config.refit))
    is_called = config.objective.kind is ObjectiveKind.called or bool(config.study.metric_parts)
    if from_python or is_called:
        return _same_call(config.study, changed)
    words = [f" study.{key}={value}" for key, value in changed.items()]
    return study_command("resume", config.study) + "".join(words)


def resume_command_from_settings(
    study: StudyConfig, settings: Mapping[str, str], n_trials: int | None = None
) -> str:
    """Return the command that resumes the study, from the flat settings of a record; `n_trials`:
    with this total."""
    prefix = "refit."
    if f"{prefix}of" in settings:
        own = {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}
        return _refit_line(study, own)
    metric = settings.get("study.metric_function")
    is_metric_called = metric is not None and not is_function_target(metric)
    if is_metric_called or settings.get("objective.kind") == ObjectiveKind.called.name:
        changed = {} if n_trials is None else {"n_trials": n_trials}
        where = settings.get("objective.file", "the same program")
        return f"{_same_call(study, changed)}, in {where}"
    return study_command("resume", study) + ("" if n_trials is None else f" n_trials={n_trials}")


def refit_settings(origin: RefitOrigin | None) -> dict[str, str]:
    """Return the flat settings of a refit's record: its study, its trial, and the arguments that
    were given; empty for a search."""
    if origin is None:
        return {}
    trial = {} if origin.trial is None else {"trial": str(origin.trial)}
    return {"of": origin.study, **trial, **_texts(origin.arguments)}


_NAMES = ("rows", "hold_out", "seeds", "batch_size", "check", "parallel")
"""The arguments that say how a refit trains."""
_WORDS_BEFORE = {"n_seeds": "seeds"}
"""The words of arguments of a refit, by the names that records of earlier versions have."""


def _refit_line(refit: StudyConfig, settings: Mapping[str, str]) -> str:
    """Return the command that resumes a refit, which stands in a folder of its study."""
    study = StudyConfig(name=settings["of"], dir=str(Path(refit.dir).parent.parent))
    named = {_WORDS_BEFORE.get(key, key): text for key, text in settings.items()}
    which = f" which={named['trial']}" if "trial" in named else ""
    defaults = _texts(RefitArguments())
    known = {name: named[name] for name in _NAMES if name in named}
    words = [f" {k}={v}" for k, v in known.items() if defaults.get(k) != v.lower()]
    return study_command("refit", study) + which + "".join(words)


def _texts(arguments: RefitArguments) -> dict[str, str]:
    """Return the arguments that say how a refit trains, as they are typed."""
    values = {name: getattr(arguments, name) for name in _NAMES}
    given = {name: value for name, value in values.items() if value is not None}
    return {k: v.name if isinstance(v, Enum) else str(v).lower() for k, v in given.items()}


def _same_call(study: StudyConfig, changed: Mapping[str, object]) -> str:
    arguments = "".join(f", {key}={value!r}" for key, value in changed.items())
    return f"the same call with name={study.name!r}{arguments}"


def refuse_refit_folder(study: StudyConfig) -> None:
    """Raise ConfigError for the folder of a refit, whose settings are made from its study's."""
    of = Path(study.dir).absolute().parent
    if Path(study.dir).name != REFITS_FOLDER or not StudyFiles(of).config.exists():
        return
    command = study_command(
        "refit", StudyConfig(name=of.name, dir=str(Path(study.dir).parent.parent))
    )
    raise ConfigError(f"study.name={study.name}: this is a refit; go on with it by: {command}")


def refuse_missing_function(config: Config, called: CalledFunction | None) -> None:
    """Raise ConfigError if only the caller has the function of the study."""
    if config.objective.kind is ObjectiveKind.called and called is None:
        raise ConfigError(
            f"study.name={config.study.name}: this study is called from Python, and its function "
            f"is stored nowhere. Go on with it in {config.objective.file}: {resume_command(config)}"
        )
    if config.study.metric_parts and called is None:
        raise ConfigError(
            f"study.name={config.study.name}: its metric {config.study.users_metric} is a function "
            f"that a call from Python gave, and is stored nowhere. Use {resume_command(config)}, "
            f"metric={config.study.users_metric}. The metric of a new study can be in a file: "
            f"study.metric=costs.py:{config.study.users_metric}."
        )


def part_digests(parts: Sequence[str]) -> Mapping[str, str]:
    """Return the digests of a called function's parts, by name."""
    split = (part.partition("=") for part in parts)
    return {name: digest for name, _, digest in split}
