"""What goes with what a command line chose, where nobody chose it: the model by the data, the space
by the model. (The length of the training goes with it too: `schemas.py`.)

Config files cannot say so: wherever an application has put ours, they would have to name the place.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from automl.cli.command_registry import conf_dir
from automl.cli.schemas import DEFAULT_MODEL, DEFAULT_SPACE, GIVEN_SPACE, model_of
from automl.cli.space_overrides import is_about_space

_GROUPS = ("data", "model", "objective", "space")


@dataclass(frozen=True)
class ChosenOptions:
    """Options, by name."""

    data: str
    """Its kind, whatever option that is of."""
    model: str
    objective: str
    space: str


def chosen_by(lines: Sequence[str]) -> ChosenOptions | None:
    """What overrides make of the table of contents; None: it has to be composed, since a line does
    more than to name options of ours, which choose no others."""
    found = dict(_defaults())
    for line in lines:
        key, _, value = line.partition("=")
        group, _, setting = key.lstrip("+~").partition(".")
        if group not in _GROUPS or (setting and setting != "kind") or _is_new_space(line):
            continue
        is_file = (conf_dir() / group / f"{value}.yaml").is_file()
        if key != group or not (is_file or value == GIVEN_SPACE):
            return None
        found[group] = value
    data, model, objective, space = (found[group] for group in _GROUPS)
    return ChosenOptions(data, model, objective, space)


def added_options(chosen: ChosenOptions, lines: Sequence[str]) -> tuple[str, ...]:
    """The options to choose besides."""
    model, more = chosen.model, []
    if model == DEFAULT_MODEL:
        model = model_of(chosen.data, chosen.objective)
        more = [f"model={model}"]
    space = _space_for(chosen.objective, model)
    if chosen.space == DEFAULT_SPACE != space and not any(map(_is_whole_space, lines)):
        more.append(f"space={space}")
    return tuple(more)


def other_options(lines: Sequence[str]) -> list[str]:
    """Those that say nothing of options that are yet to be chosen (`~space.kind`)."""
    return [line for line in lines if not is_about_space(line) and not _is_of_model(line)]


def _space_for(objective: str, model: str) -> str:
    """The option of `space` that goes with them; that of a model has its name. `objective=optuna`
    needs none written."""
    if objective == "optuna":
        return "empty"
    is_there = (conf_dir() / "space" / f"{model}.yaml").is_file()
    return model if objective == "builtin" and is_there else DEFAULT_SPACE


def _is_new_space(line: str) -> bool:
    """Whether it changes params, or takes the space away for others, which names no option."""
    return is_about_space(line) and not line.startswith("space=")


def _is_whole_space(line: str) -> bool:
    return line == "~space" or line.startswith("space=")


def _is_of_model(line: str) -> bool:
    return line.lstrip("+~").startswith("model.")


@functools.cache
def _defaults() -> dict[str, str]:
    """The table of contents."""
    text = (conf_dir() / "sweep.yaml").read_text("utf-8")
    listed = dict(re.findall(r"^  - (\w+): (\w+)", text, re.MULTILINE))
    return {group: listed[group] for group in _GROUPS}
