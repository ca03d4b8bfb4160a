"""Gives a sweep that begins with an Optuna study (`from=ADDRESS`) the settings that follow from it.

What the line says itself counts: the direction, the metrics and the space are added where it says
nothing of them. The trials are copied when the study opens (`search/imported_trials.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from automl.cli.arguments import CommandLine
from automl.search.optuna_address import OptunaSource, parse_optuna_source


def begin_with_optuna(line: CommandLine) -> CommandLine:
    """Return the line with the settings of the Optuna study that it names by `from=`; any other
    line as it is. Raises ConfigError."""
    given = [word.partition("=")[2].strip("'\"") for word in line.arguments if _is_from(word)]
    source = parse_optuna_source(given[0]) if given and line.command == "sweep" else None
    if source is None:
        return line
    added = tuple(_settings(source, given[0], line.overrides))
    others = tuple(word for word in line.arguments if not _is_from(word))
    return replace(line, overrides=(*line.overrides, *added), arguments=others)


def _is_from(word: str) -> bool:
    return word.startswith("from=")


def _settings(source: OptunaSource, address: str, overrides: Sequence[str]) -> Iterator[str]:
    from automl.cli.space_overrides import is_about_space, override_text
    from automl.search.optuna_source import read_optuna_study  # loads Optuna

    study = read_optuna_study(source)
    yield f"study.began_with={override_text(address)}"
    keys = {word.lstrip("+~").partition("=")[0] for word in overrides}
    several = len(study.directions) > 1
    if "study.metric" not in keys and (several or study.metric_names):
        names = list(study.metric_names) or [f"value_{n}" for n in range(len(study.directions))]
        yield f"study.metric={override_text(names if several else names[0])}"
    if "study.direction" not in keys:
        directions = [direction.value for direction in study.directions]
        yield f"study.direction={override_text(directions if several else directions[0])}"
    asks_itself = "objective=optuna" in overrides
    if not asks_itself and not any(map(is_about_space, overrides)):
        yield f"space={override_text(study.space_entries())}"
