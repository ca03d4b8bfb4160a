"""How a study goes on, which depends on what began it: a command line, or a call from Python."""

from __future__ import annotations

from collections.abc import Mapping

from automl.config import Config, ObjectiveConfig, ObjectiveKind, StudyConfig
from automl.errors import ConfigError
from automl.record.directory import command_line
from automl.training.called import CalledFunction


def how_to_go_on(config: Config, **changed: object) -> str:
    """What to type to go on with the study, with settings of `study.` changed."""
    called = config.objective.kind is ObjectiveKind.called
    return _line(config.study, config.objective.target if called else None, changed)


def how_to_go_on_with(study: StudyConfig, settings: Mapping[str, str]) -> str:
    """The same from the flat settings that a record holds."""
    called = settings.get("objective.kind") == ObjectiveKind.called.name
    return _line(study, settings.get("objective.target") if called else None, {})


def _line(study: StudyConfig, called: str | None, changed: Mapping[str, object]) -> str:
    if called is None:
        words = [f" study.{key}={value}" for key, value in changed.items()]
        return command_line("resume", study) + "".join(words)
    given = "".join(f", {key}={value!r}" for key, value in changed.items())
    return f"automl.sweep({called}, name={study.name!r}{given})"


def refuse_uncalled(config: Config, called: CalledFunction | None) -> None:
    """Raises ConfigError where a study is of a function that only its caller has."""
    if config.objective.kind is ObjectiveKind.called and called is None:
        raise ConfigError(
            f"study.name={config.study.name}: this study is called from Python, and its function "
            f"is stored nowhere. Go on with it in {config.objective.file}: {how_to_go_on(config)}"
        )


def parts_of(objective: ObjectiveConfig) -> Mapping[str, str]:
    """What a called function was made of, by name."""
    split = (part.partition("=") for part in objective.parts)
    return {name: digest for name, _, digest in split}
