"""Makes the command of one trial from the command line of a Hydra application. Pure.

A trial is the application itself, run once with the trial's overrides. Hydra's own words that say
how a multirun goes are replaced; all others stay.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from automl.api.hydra_sweeper.sweeper_settings import Goal, SweepSpace
from automl.errors import ConfigError
from automl.objectives.program.program_arguments import OVERRIDES, override_text

_SWEEP_DIR = "hydra.sweep.dir="
_REPLACED = ("hydra.sweeper", "hydra.launcher", "hydra.mode", "hydra.sweep.dir", "hydra.run.dir")
"""Keys that hold for the multirun, or that each trial is given anew."""


def program_prefix(started: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """Return the words that start the application, without its arguments: `python train.py`.

    `started` are the words of the process, `arguments` those that Hydra took. Raises ConfigError if
    the application was not started by a command line.
    """
    n_words = len(started) - len(arguments)
    if n_words < 2 or list(started[n_words:]) != list(arguments):
        raise ConfigError(
            "hydra/sweeper=automl: each trial runs the application's command line, and this "
            "process was not started by one. Start it as python train.py -m hydra/sweeper=automl, "
            "or call automl.sweep with a function."
        )
    return list(started[:n_words])


def trial_command(
    prefix: Sequence[str],
    flags: Mapping[str, str | None],
    hydra_overrides: Sequence[str],
    space: SweepSpace,
    goal: Goal,
    sweep_dir: str,
) -> str:
    """Return `objective.command`: the application with all that holds for every trial, and places
    for what differs. `flags` are Hydra's own, such as `--config-name`."""
    needed = "false" if goal.is_named else "true"
    names = ",".join(override_text(name) for name in goal.metrics)
    returned = (
        "++hydra.callbacks.automl={_target_:hydra_plugins.automl_sweeper.ReturnedValue,"
        f"metrics:[{names}],is_needed:{needed}}}"
    )
    fixed = (
        *prefix,
        *(f"--{name}={value}" for name, value in flags.items() if value is not None),
        *(word for word in hydra_overrides if not _is_replaced(word)),
        *space.fixed,
        "hydra.mode=RUN",
        f"{_SWEEP_DIR}{override_text(sweep_dir)}",
        "hydra.run.dir=${hydra.sweep.dir}/${hydra.sweep.subdir}",
        returned,
    )
    places = (
        "hydra.job.num={trial}",
        "hydra.job.id={trial}",
        *(f"{name}={{{name}}}" for name in space.raw),
        f"{{{OVERRIDES}}}",
    )
    return shlex.join([*map(_without_places, fixed), *places])


def _is_replaced(word: str) -> bool:
    key = word.lstrip("+~").partition("=")[0].partition("@")[0].replace("/", ".")
    return any(key == known or key.startswith(f"{known}.") for known in _REPLACED)


def _without_places(word: str) -> str:
    return word.replace("{", "{{").replace("}", "}}")


def sweep_dir_of(command: str) -> str | None:
    """Return the folder of the trials' outputs that a stored command names; None: it names none."""
    for word in shlex.split(command):
        if word.startswith(_SWEEP_DIR):
            text = word.removeprefix(_SWEEP_DIR).replace("{{", "{").replace("}}", "}")
            return text[1:-1].replace("\\'", "'") if text.startswith("'") else text
    return None
