"""Gives a sweep that begins with an Optuna study (`from=ADDRESS`) the settings that follow from it,
and so a report on that study.

What the line says itself counts: the direction, the metrics and the space are added where it says
nothing of them. The trials are copied when the study opens (`search/imported_trials.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from automl.cli.arguments import CommandLine
from automl.cli.option_keys import asks_by_suggest
from automl.config import study_name_of
from automl.errors import ConfigError
from automl.search.optuna_address import OptunaSource, parse_optuna_source

REPORT = "report_optuna"
"""The entry of the command table that writes a page on an Optuna study."""


def begin_with_optuna(line: CommandLine) -> CommandLine:
    """Return the line with the settings of the Optuna study that it names by `from=`; any other
    line as it is. Raises ConfigError."""
    given = [word.partition("=")[2].strip("'\"") for word in line.arguments if _is_from(word)]
    takes_one = line.command in ("sweep", REPORT)
    source = parse_optuna_source(given[0]) if given and takes_one else None
    if source is None:
        return line
    shown = ("objective=outside",) if line.command == REPORT else ()
    added = (*shown, *_settings(source, given[0], line.overrides, is_shown_only=bool(shown)))
    others = tuple(word for word in line.arguments if not _is_from(word))
    return replace(line, overrides=(*line.overrides, *added), arguments=others)


def _is_from(word: str) -> bool:
    return word.startswith("from=")


def _settings(
    source: OptunaSource, address: str, overrides: Sequence[str], *, is_shown_only: bool
) -> Iterator[str]:
    from automl.cli.schemas import register_space
    from automl.cli.space_overrides import is_about_space, override_text
    from automl.search.optuna_source import read_optuna_study  # loads Optuna

    study = read_optuna_study(source)
    if is_shown_only:
        yield f"study.name={override_text(study_name_of(study.name))}"
    yield f"study.began_with={override_text(address)}"
    keys = {word.lstrip("+~").partition("=")[0] for word in overrides}
    several = len(study.directions) > 1
    if "study.metric" not in keys and (several or study.metric_names):
        names = list(study.metric_names) or [f"value_{n}" for n in range(len(study.directions))]
        yield f"study.metric={override_text(names if several else names[0])}"
    if "study.direction" not in keys:
        directions = [direction.value for direction in study.directions]
        yield f"study.direction={override_text(directions if several else directions[0])}"
    asks_itself = any(map(_asks_for_params, overrides))
    if not asks_itself and not any(map(is_about_space, overrides)):
        if not any(trial.distributions for trial in study.trials):
            shown = "so that there is nothing to show."
            begun = "which would be the space of this study. Write it: space.lr=1e-4..1e-1"
            raise ConfigError(
                f"from={address}: no trial of study {study.name} has params, "
                f"{shown if is_shown_only else begun}"
            )
        yield register_space(study.space_entries(needs_conditions=not is_shown_only))


def _asks_for_params(override: str) -> bool:
    """Return whether an override names an objective that asks for its params itself."""
    key, _, value = override.partition("=")
    is_named = override in ("objective=optuna", "objective.suggests=true")
    return is_named or (key == "objective.target" and asks_by_suggest(value.strip("'\"")))
