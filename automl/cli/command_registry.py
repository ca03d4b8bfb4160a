"""The commands: what each is called, does and takes of a study, and what runs it.

A new command is a file in `automl/commands/` and an entry here; help, completion, composing and
dispatch read this table. What runs a command is imported when it is called, and not before. Below
the table stand the few helpers that need no Hydra and serve several modules of the command line.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from automl.config import Config

Run: TypeAlias = "Callable[[Config, str], int]"
"""Takes the config and the YAML that `resume` composes it from. Returns the exit code; raises
AutoMLError."""


class StoredPart(enum.Enum):
    """What a command composes from of the config that a study stored; the rest is `conf/`'s."""

    NOTHING = enum.auto()
    TRACKING = enum.auto()
    """Where its runs are."""
    STORES = enum.auto()
    """The same, and where the study is."""
    WHOLE = enum.auto()


class StudyChoice(enum.Enum):
    """Which study's config that is, where no `study.name` is given."""

    NAMED = enum.auto()
    """None: the name has to be given."""
    NAMED_IF_ANY = enum.auto()
    """None: nobody's, and `conf/` is composed from."""
    NEWEST = enum.auto()
    """The newest, and there must be one."""
    NEWEST_IF_ANY = enum.auto()


@dataclass(frozen=True)
class Command:
    """A word of the command line."""

    name: str
    does: str
    """One line of help."""
    run: str
    """`module:function` of a `Run`."""
    stored: StoredPart = StoredPart.NOTHING
    which: StudyChoice = StudyChoice.NAMED
    """Of no meaning where nothing stored is taken."""

    def load(self) -> Run:
        """Import what runs it."""
        run: Run = resolve_name(self.run)
        return run


DEFAULT = "sweep"
"""The command of a line that names none."""
_ALL = (
    Command(
        "sweep",
        "run a study up to study.n_trials trials (the default command)",
        "automl.commands.sweep:run",
    ),
    Command(
        "resume",
        "go on with study.name=NAME from its own stored config",
        "automl.commands.resume:run",
        StoredPart.WHOLE,
    ),
    Command(
        "status",
        "show a study so far, from another process too (default: the newest)",
        "automl.commands.status:run",
    ),
    Command(
        "devices",
        "show what admission sees: memory, load, who else is there; watch=true: until Ctrl-C",
        "automl.commands.devices:run",
    ),
    Command(
        "columns",
        "show what each column of data.path (or of study.name's table) is taken for, and why",
        "automl.commands.columns:run",
        StoredPart.WHOLE,
        StudyChoice.NAMED_IF_ANY,
    ),
    Command(
        "gain",
        "time small, middle and large trials by device, threads, precision, in packs: what to use",
        "automl.commands.gain:run",
        StoredPart.WHOLE,
        StudyChoice.NAMED_IF_ANY,
    ),
    Command(
        "evaluate",
        "score the best of study.name=NAME, or evaluate.trials=[3,7], on rows no sweep saw",
        "automl.commands.evaluate:run",
        StoredPart.WHOLE,
    ),
    Command(
        "ensemble",
        "make one model of those of study.name=NAME that are the best together",
        "automl.commands.ensemble:run",
        StoredPart.WHOLE,
    ),
    Command(
        "refit",
        "train the best trial of study.name=NAME again, on more rows and all devices",
        "automl.commands.refit:run",
        StoredPart.WHOLE,
    ),
    Command(
        "ui",
        "start the MLflow UI on this machine alone, on ui.port; opens study.name (the newest)",
        "automl.commands.ui:run",
        StoredPart.TRACKING,
        StudyChoice.NEWEST_IF_ANY,
    ),
    Command(
        "sync",
        "give MLflow, and the database of a shared study, what they could not take while away",
        "automl.commands.sync:run",
        StoredPart.STORES,
        StudyChoice.NEWEST,
    ),
    Command(
        "export",
        "write study.name's best model as export.format: onnx, torch, aoti, tensorrt",
        "automl.commands.export:run",
        StoredPart.WHOLE,
    ),
    Command(
        "predict",
        "score predict.input, a table of any size, into predict.output by study.name's best model",
        "automl.commands.predict:run",
        StoredPart.WHOLE,
    ),
    Command(
        "register",
        "make study.name's best model, or its refit, a version in MLflow's registry, to be served",
        "automl.commands.register:run",
        StoredPart.WHOLE,
    ),
    Command(
        "release",
        "evaluate, refit, evaluate, export and register study.name's winner; again: goes on",
        "automl.commands.release:run",
        StoredPart.WHOLE,
    ),
    Command(
        "list",
        "show the studies in study.dir: state, trials, best value, age; the newest first",
        "automl.commands.list:run",
    ),
)
COMMANDS = {command.name: command for command in _ALL}
"""In the order of the help."""

MULTIRUN = (
    "--multirun is not used here: one sweep runs all trials. Leave it out, name the values as the "
    "search space (space.lr='interval(1e-4,1e-1)' space.batch_size=32,64) and the number of trials "
    "(study.n_trials=50)."
)


def closest_word(word: str, options: Iterable[str]) -> str:
    """` Did you mean …?`, or nothing where no option is close to `word`."""
    found = difflib.get_close_matches(word, list(options), n=1)
    return f" Did you mean {found[0]}?" if found else ""


def conf_dir() -> Path:
    """Inside the package where a wheel was installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inner = package / "conf"
    return inner if inner.is_dir() else package.parent / "conf"
