"""Settings of the objective: the function or program that trains a trial."""

from __future__ import annotations

import enum
import re
import shlex
from dataclasses import dataclass

from automl.config.checks import check_function_target, check_setting
from automl.config.setting import setting

_SHELLS_OWN = frozenset(("|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"))
"""Words that only a shell understands."""


class ObjectiveKind(enum.Enum):
    builtin = "builtin"
    python = "python"
    called = "called"
    """A function that was given to `automl.sweep`."""
    optuna = "optuna"
    command = "command"
    outside = "outside"
    """Experiments that run elsewhere; `ask` gives their params and `tell` takes their results."""

    @property
    def has_function(self) -> bool:
        """Return whether a user's function trains a trial."""
        return self in (ObjectiveKind.python, ObjectiveKind.called, ObjectiveKind.optuna)


class CodeChange(enum.Enum):
    """What a sweep does where the objective's code has changed since the study's last sweep."""

    warn = "warn"
    refuse = "refuse"


@dataclass
class ObjectiveConfig:
    """The objective: built-in training, a user's function, one for Optuna, or a program."""

    kind: ObjectiveKind = setting("nobody", ObjectiveKind.builtin)
    target: str | None = setting("all", None)
    """`module:function` (kinds python and optuna), imported from the current folder or the Python
    path, or `file.py:function`, the file as seen from the current folder."""

    file: str | None = setting("nobody", None)
    """The file of a function that was called from Python, for people (kind called)."""
    parts: list[str] = setting("nobody", factory=list)
    """`NAME=DIGEST` of each part of the function when the study began (kind called)."""
    suggests: bool = setting("nobody", False)
    """Whether the function (kind called) asks for its params by `trial.suggest_…` while it trains,
    as objectives for Optuna do."""
    command: str | None = setting("some", None)
    """A program with its arguments (kind command), started in the current folder without a shell.
    Params are appended as `--name=value`, or replace `{name}`, `{params}`, `{overrides}` or
    `{json}`; `{seed}`, `{trial}`, `{checkpoint_dir}`, `{trial_dir}` and `{n_devices}` are replaced,
    too."""
    pattern: str | None = setting("some", None)
    """A regular expression (kind command) whose named groups are metrics, and `step` if it has one;
    none: `name: 0.3`, `name=0.3`, JSON and the like are found."""

    wandb: bool = setting("nobody", False)
    """Whether what a program (kind command) logs to W&B goes to its trial: a logged `study.metric`
    is a report, and `wandb.config` has the params. W&B itself is offline."""

    if_changed: CodeChange = setting("few", CodeChange.warn)
    """What happens where the code of a function or program has changed since the last sweep of the
    study. warn: the sweep says so and goes on. refuse: it does not begin."""

    @property
    def asks_for_params(self) -> bool:
        """Whether the objective is written for Optuna: a trial learns its params while it runs."""
        return self.kind is ObjectiveKind.optuna or self.suggests

    def __post_init__(self) -> None:
        rule = "is for a function that automl.sweep(…) is called with: train= finds out by itself."
        is_called = self.kind is ObjectiveKind.called
        check_setting(is_called or not self.suggests, "objective.suggests", self.suggests, rule)
        if is_called:
            check_setting(
                bool(self.target), "objective.kind", "called", "is for automl.sweep(…) alone."
            )
        if self.kind in (ObjectiveKind.python, ObjectiveKind.optuna):
            check_function_target("objective", self.target, self.kind.value)
        if self.kind is ObjectiveKind.command:
            _check_command(self.command)
            _check_pattern(self.pattern)
        else:
            for key in ("command", "pattern"):
                value = getattr(self, key)
                check_setting(
                    value is None, f"objective.{key}", value, "is for objective=command: add it."
                )
            rule = "is for objective=command: add it."
            check_setting(not self.wandb, "objective.wandb", self.wandb, rule)


def _check_command(command: str | None) -> None:
    key, rule = "objective.command", "objective=command needs train='python train.py'."
    check_setting(command is not None and bool(command.strip()), key, command, rule)
    assert command is not None
    try:
        words = shlex.split(command)
    except ValueError as error:
        check_setting(False, key, command, f"{str(error).lower()}: close the quotation.")
    own = next((word for word in words if word in _SHELLS_OWN), None)
    rule = f"there is no shell that would understand {own!r}; ask one: bash -c '…'."
    check_setting(own is None, key, command, rule)
    rule = f"a program comes first; set a variable by: env {words[0]} …"
    check_setting(re.match(r"\w+=", words[0]) is None, key, command, rule)


def _check_pattern(pattern: str | None) -> None:
    if pattern is None:
        return
    key = "objective.pattern"
    names: tuple[str, ...] = ()
    try:
        names = find_metric_groups(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        check_setting(False, key, pattern, f"it is no regular expression ({error}).")
    rule = "it needs a named group for each metric, such as loss: (?P<val_loss>[0-9.]+)"
    check_setting(bool(names), key, pattern, rule)


def find_metric_groups(pattern: str) -> tuple[str, ...]:
    """Return the names of the groups that are metrics. Raises re.error."""
    return tuple(name for name in re.compile(pattern).groupindex if name not in STEP_NAMES)


STEP_NAMES = ("global_step", "step", "iteration", "iter", "epoch")
"""Names that programs give to the number of a report, the finest first."""
