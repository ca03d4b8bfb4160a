"""The options that follow from chosen ones: the model from the data, the space from the model.

They apply where the user chose none. The length of the training follows, too (`schemas.py`). Config
files cannot express this: they would have to name the place that an application gave ours.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from automl.cli.command_registry import conf_dir
from automl.cli.schemas import DEFAULT_MODEL, DEFAULT_SPACE, GIVEN_SPACE, default_model_option
from automl.cli.space_overrides import is_about_space

_GROUPS = ("data", "model", "objective", "space")


@dataclass(frozen=True)
class ChosenOptions:
    """The options that a config chooses, by name; "" where none is chosen."""

    data: str
    """The kind of the data, whichever option has it."""
    model: str
    objective: str
    space: str


def find_chosen_options(lines: Sequence[str]) -> ChosenOptions | None:
    """Return the options that `conf/sweep.yaml` and the overrides choose. None: it has to be
    composed, since a line does more than to name options of ours, which choose no others."""
    options = dict(_defaults())
    for line in lines:
        key, _, value = line.partition("=")
        group, _, setting = key.lstrip("+~").partition(".")
        if group not in _GROUPS or (setting and setting != "kind") or _is_new_space(line):
            continue
        is_file = (conf_dir() / group / f"{value}.yaml").is_file()
        if key != group or not (is_file or value == GIVEN_SPACE):
            return None
        options[group] = value
    data, model, objective, space = (options[group] for group in _GROUPS)
    return ChosenOptions(data, model, objective, space)


def added_options(chosen: ChosenOptions, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the options to choose in addition, as overrides."""
    model, added = chosen.model, []
    if model == DEFAULT_MODEL:
        model = default_model_option(chosen.data, chosen.objective)
        added = [f"model={model}"]
    space = _space_for(chosen.objective, model)
    if chosen.space == DEFAULT_SPACE != space and not any(map(_is_whole_space, lines)):
        added.append(f"space={space}")
    return tuple(added)


def other_options(lines: Sequence[str]) -> list[str]:
    """Return the overrides that do not depend on options yet to be chosen (unlike
    `~space.kind`)."""
    return [line for line in lines if not is_about_space(line) and not _is_of_model(line)]


def _space_for(objective: str, model: str) -> str:
    """Return the option of `space` for an objective and a model; the space of a model has its name.
    `objective=optuna` needs no space."""
    if objective == "optuna":
        return "empty"
    has_own_space = (conf_dir() / "space" / f"{model}.yaml").is_file()
    return model if objective == "builtin" and has_own_space else DEFAULT_SPACE


def _is_new_space(line: str) -> bool:
    """Return whether the override changes params, or removes the space for others, which names no
    option."""
    return is_about_space(line) and not line.startswith("space=")


def _is_whole_space(line: str) -> bool:
    return line == "~space" or line.startswith("space=")


def _is_of_model(line: str) -> bool:
    return line.lstrip("+~").startswith("model.")


@functools.cache
def _defaults() -> dict[str, str]:
    """Return the options that the defaults list of `conf/sweep.yaml` names."""
    text = (conf_dir() / "sweep.yaml").read_text("utf-8")
    listed = dict(re.findall(r"^  - (\w+): (\w+)", text, re.MULTILINE))
    return {group: listed[group] for group in _GROUPS}
