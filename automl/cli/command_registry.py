"""The commands: their names, lines of help, stored settings, and the functions that run them.

A new command is a file in `automl/commands/` and an entry here; help, completion, composing and
dispatch read this table. The module of a command is imported when it is called, and not before. The
few helpers below the table need no Hydra and serve several modules of the command line.
"""

from __future__ import annotations

import difflib
import enum
import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from automl.config import command_arguments as arguments
from automl.config.command_arguments import CommandArguments

if TYPE_CHECKING:
    from automl.commands.command_call import CommandCall

Run: TypeAlias = "Callable[[CommandCall], int]"
"""The function of a command. It returns the exit code and raises AutoMLError."""


class CommandGroup(enum.Enum):
    """What a command is for; `automl help GROUP` lists the commands of one group."""

    run = "run"
    look = "look"
    steer = "steer"
    use = "use"
    keep = "keep"


class StoredPart(enum.Enum):
    """The part of a study's stored config that a command composes from; the rest comes from
    `conf/`."""

    NOTHING = enum.auto()
    TRACKING = enum.auto()
    """The settings of tracking, which say where the study's runs are."""
    STORES = enum.auto()
    """The settings of tracking and the storage, which say where the runs and the study are."""
    WHOLE = enum.auto()
    EDITABLE = enum.auto()
    """All settings except those that carry a credential and are stored nowhere; the command needs
    none of these."""


class StudyChoice(enum.Enum):
    """The study whose stored config a command takes if the line gives no `study.name`."""

    NAMED = enum.auto()
    """Takes no study: the name has to be given."""
    NAMED_IF_ANY = enum.auto()
    """Takes no study: the command composes from `conf/`."""
    NAMED_OR_NEW = enum.auto()
    """Takes no study: the name has to be given. A study that does not exist yet is begun, composed
    from `conf/`."""
    NEWEST = enum.auto()
    """Takes the newest study, and there must be one."""
    NEWEST_IF_ANY = enum.auto()


class StoredSettingsNeed(enum.Enum):
    """Says when a command needs the settings that the study has without those of the line."""

    NONE = enum.auto()
    IF_LINE_CHANGES = enum.auto()
    """Where the line gives more than the study's place and the command's own words."""
    BEFORE_LINE = enum.auto()
    """Always, and composed before the line: another edit that comes in between is then refused, and
    not taken back."""


@dataclass(frozen=True)
class Command:
    """A command word, with what help, composing and dispatch need to know about it."""

    name: str
    does: str
    """The sentence of help that says what the command does."""
    group: CommandGroup
    stored: StoredPart = StoredPart.NOTHING
    which: StudyChoice = StudyChoice.NAMED
    """The study that is taken if none is named; not used if `stored` is NOTHING."""
    file: str = ""
    """The module in `automl/commands/` whose function of the command's name runs it; empty: a
    module of the command's name, whose function is `run`."""
    asks_sweeps: bool = False
    """Whether it asks the sweeps of a study for something. For a shared study it needs the
    database, with its present settings, total and edits."""
    if_new: tuple[str, ...] = ()
    """Overrides for a study that does not exist yet; one counts where the line does not give its
    group."""
    joins_shared: bool = False
    """Whether it may join a shared study, from which it then takes some settings."""
    stored_settings: StoredSettingsNeed = StoredSettingsNeed.NONE
    arguments: type[CommandArguments] = CommandArguments
    """The class of the command's arguments, which are no settings."""
    bare_words: tuple[str, ...] = ("study.name",)
    """The keys that words without `=` stand for, in order."""
    examples: tuple[str, ...] = ()
    """Lines that help shows, without the program's name."""
    page: str = ""
    """The manual of the command, as seen from the root of the repository."""
    written_now: str = ""
    """What is written today in place of this older name, which help and completion leave out."""
    is_support: bool = False
    """Whether it is for reports of problems alone: messages and the last line of help name it, and
    the lists of commands leave it out."""
    other_entries: Mapping[str, str] = field(default_factory=dict)
    """The entries of the table that run the command where the line has a certain word
    (`format=registry`), or a word that begins so (`from=`)."""
    has_many_words: bool = False
    """Whether the last of these keys takes all words that follow, as a list."""

    def load(self) -> Run:
        """Import and return the function that runs the command."""
        module = importlib.import_module(f"automl.commands.{self.file or self.name}")
        run: Run = getattr(module, self.name if self.file else "run")
        return run


DEFAULT_COMMAND = "sweep"
"""The command of a line that names no command."""
_ALL = (
    Command(
        "sweep",
        "run a study up to n_trials= trials, or for timeout= (the default command)",
        CommandGroup.run,
        joins_shared=True,
        bare_words=(),
        arguments=arguments.SweepArguments,
        other_entries={"from=": "clone"},
        page="docs/how-to/go-on.md",
        examples=(
            "table=houses.csv target=price timeout=10min",
            "train=my.py:train space.lr=log:1e-4..1e-1 n_trials=50",
            "sweep from=prices name=prices-2 warm=true space.lr=0.01..0.1",
        ),
    ),
    Command(
        "resume",
        "go on with a study, from its own settings and those of the line",
        CommandGroup.run,
        StoredPart.WHOLE,
        asks_sweeps=True,
        stored_settings=StoredSettingsNeed.IF_LINE_CHANGES,
        page="docs/how-to/go-on.md",
        examples=(
            "resume prices",
            "resume prices n_trials=100",
        ),
    ),
    Command(
        "status",
        "show a study so far (default: the newest, and the others below)",
        CommandGroup.look,
        arguments=arguments.StatusArguments,
        page="docs/how-to/look.md",
        examples=(
            "status",
            "status prices trial=7",
        ),
    ),
    Command(
        "report",
        "write one HTML page on a study (default: the newest), or on how several compare",
        CommandGroup.look,
        arguments=arguments.ReportArguments,
        bare_words=("study.name", "studies"),
        has_many_words=True,
        other_entries={"from=": "report_optuna"},
        page="docs/how-to/report.md",
        examples=(
            "report prices",
            "report prices prices-2",
            "report prices to=trials.csv",
            "report from=old.db:prices",
            "report prices watch=true",
        ),
    ),
    Command(
        "report_optuna",
        "write one HTML page on a study of Optuna's",
        CommandGroup.look,
        file="report",
        arguments=arguments.OptunaReportArguments,
        bare_words=(),
        written_now="report from=ADDRESS",
    ),
    Command(
        "compare",
        "compare studies (compare A B): best values, progress, settings that differ; one HTML page",
        CommandGroup.look,
        arguments=arguments.CompareArguments,
        bare_words=("studies",),
        has_many_words=True,
        written_now="report A B",
    ),
    Command(
        "trials",
        "print the table of all trials, or write it to=FILE (default: the newest study)",
        CommandGroup.look,
        arguments=arguments.TrialsArguments,
        written_now="status NAME trials=all, or report NAME to=trials.csv",
    ),
    Command(
        "plan",
        "say what a sweep of these words would do: columns, memory, trials at once, time",
        CommandGroup.run,
        StoredPart.WHOLE,
        StudyChoice.NAMED_IF_ANY,
        arguments=arguments.PlanArguments,
        page="docs/how-to/plan.md",
        examples=(
            "plan table=houses.csv target=price",
            "plan prices measure=true",
        ),
    ),
    Command(
        "devices",
        "show the devices, in a terminal until Ctrl-C: memory, load, who else is there",
        CommandGroup.look,
        arguments=arguments.DevicesArguments,
        bare_words=(),
        page="docs/how-to/look.md",
        examples=(
            "devices",
            "devices --json",
        ),
    ),
    Command(
        "columns",
        "show what each column of data.path (or of study.name's table) is taken for, and why",
        CommandGroup.run,
        StoredPart.WHOLE,
        StudyChoice.NAMED_IF_ANY,
        written_now="plan",
    ),
    Command(
        "gain",
        "time small, middle and large trials by device, threads, precision, in packs: what to use",
        CommandGroup.run,
        StoredPart.WHOLE,
        StudyChoice.NAMED_IF_ANY,
        written_now="plan measure=true",
    ),
    Command(
        "evaluate",
        "score the winner, or which=3,7, on rows that no sweep saw",
        CommandGroup.use,
        StoredPart.WHOLE,
        arguments=arguments.EvaluateArguments,
        page="docs/how-to/evaluate.md",
        examples=(
            "evaluate prices",
            "evaluate prices which=refit,ensemble,7",
        ),
    ),
    Command(
        "ensemble",
        "make one model of those of study.name=NAME that are the best together",
        CommandGroup.use,
        StoredPart.WHOLE,
        written_now="evaluate NAME which=ensemble, which makes it where there is none",
    ),
    Command(
        "refit",
        "train the winner again, on more rows and all devices",
        CommandGroup.use,
        StoredPart.WHOLE,
        arguments=arguments.RefitArguments,
        page="docs/how-to/refit.md",
        examples=(
            "refit prices",
            "refit prices rows=all seeds=5",
        ),
    ),
    Command(
        "ui",
        "start the MLflow UI on this machine alone, on port=5000, and open the study there",
        CommandGroup.look,
        StoredPart.TRACKING,
        StudyChoice.NEWEST_IF_ANY,
        arguments=arguments.UIArguments,
        page="docs/how-to/mlflow.md",
        examples=(
            "ui",
            "ui prices port=5001",
        ),
    ),
    Command(
        "sync",
        "give MLflow, and the database of a shared study, what they could not take while away",
        CommandGroup.keep,
        StoredPart.STORES,
        StudyChoice.NEWEST,
        page="docs/how-to/mlflow.md",
        examples=(
            "sync prices",
            "sync prices study.dir=/data/studies",
        ),
    ),
    Command(
        "export",
        "write the winner as format=onnx, torch, aoti, tensorrt, or into MLflow's registry",
        CommandGroup.use,
        StoredPart.WHOLE,
        arguments=arguments.ExportArguments,
        other_entries={"format=registry": "register"},
        page="docs/how-to/export.md",
        examples=(
            "export prices",
            "export prices format=registry as=house-prices",
        ),
    ),
    Command(
        "predict",
        "score a table of any size into to=FILE by the winner",
        CommandGroup.use,
        StoredPart.WHOLE,
        arguments=arguments.PredictArguments,
        bare_words=("study.name", "table"),
        page="docs/how-to/predict.md",
        examples=(
            "predict prices rows.csv to=scores.csv",
            "predict prices rows.csv to=scores.parquet which=ensemble",
        ),
    ),
    Command(
        "register",
        "make study.name's best model, or its refit, a version in MLflow's registry, to be served",
        CommandGroup.use,
        StoredPart.WHOLE,
        arguments=arguments.RegisterArguments,
        written_now="export NAME format=registry",
    ),
    Command(
        "release",
        "evaluate, refit, evaluate, export and register the winner; again: goes on",
        CommandGroup.use,
        StoredPart.WHOLE,
        arguments=arguments.ReleaseArguments,
        page="docs/how-to/release.md",
        examples=(
            "release prices",
            "release prices as=house-prices rows=all",
        ),
    ),
    Command(
        "edit",
        "change space, totals, sampler, pruner or name of a study, also while it runs",
        CommandGroup.steer,
        StoredPart.EDITABLE,
        asks_sweeps=True,
        stored_settings=StoredSettingsNeed.BEFORE_LINE,
        arguments=arguments.EditArguments,
        other_entries={"name=": "rename"},
        page="docs/how-to/edit.md",
        examples=(
            "edit prices space.lr=log:1e-3..1",
            "edit prices undo=true",
            "edit prices name=houses",
        ),
    ),
    Command(
        "enqueue",
        "have a study try params='{lr: 0.01}', or the rows of from=FILE.csv, next",
        CommandGroup.steer,
        StoredPart.WHOLE,
        asks_sweeps=True,
        file="steering",
        arguments=arguments.EnqueueArguments,
        page="docs/how-to/steer.md",
        examples=(
            "enqueue prices params='{lr: 0.01}'",
            "enqueue prices from=points.csv",
        ),
    ),
    Command(
        "stop",
        "stop trial=7 of a study, or its sweep as Ctrl-C does",
        CommandGroup.steer,
        StoredPart.STORES,
        StudyChoice.NEWEST,
        file="steering",
        asks_sweeps=True,
        arguments=arguments.StopArguments,
        page="docs/how-to/steer.md",
        examples=(
            "stop prices trial=7",
            "stop prices",
        ),
    ),
    Command(
        "pause",
        "have the sweep of a study start no more trials; resume goes on",
        CommandGroup.steer,
        StoredPart.STORES,
        StudyChoice.NEWEST,
        file="steering",
        asks_sweeps=True,
        page="docs/how-to/steer.md",
        examples=(
            "pause prices",
            "resume prices",
        ),
    ),
    Command(
        "ask",
        "give params of a study to an experiment elsewhere; begins the study with space.NAME=…",
        CommandGroup.steer,
        StoredPart.WHOLE,
        StudyChoice.NAMED_OR_NEW,
        file="steering",
        stored_settings=StoredSettingsNeed.IF_LINE_CHANGES,
        if_new=("objective=outside",),
        arguments=arguments.AskArguments,
        page="docs/how-to/outside.md",
        examples=(
            "ask lab space.temperature=20..90 metric=yield direction=maximize",
            "ask lab n=4",
        ),
    ),
    Command(
        "tell",
        "record the result of an asked trial: trial=7 value=0.3",
        CommandGroup.steer,
        StoredPart.WHOLE,
        file="steering",
        stored_settings=StoredSettingsNeed.IF_LINE_CHANGES,
        arguments=arguments.TellArguments,
        page="docs/how-to/outside.md",
        examples=(
            "tell lab trial=7 value=0.3",
            "tell lab trial=8 state=failed reason='no power'",
        ),
    ),
    Command(
        "rename",
        "give study.name=NAME another name, name=NEW, here and in MLflow",
        CommandGroup.steer,
        StoredPart.STORES,
        file="upkeep",
        arguments=arguments.RenameArguments,
        written_now="edit NAME name=NEW",
    ),
    Command(
        "clone",
        "make the study name=NEW, with the settings of study.name and changes; warm=true: learns",
        CommandGroup.run,
        StoredPart.WHOLE,
        file="upkeep",
        arguments=arguments.CloneArguments,
        written_now="sweep from=NAME name=NEW, or start=false beside it",
    ),
    Command(
        "delete",
        "delete a study, with its runs in MLflow; asks first, --yes does not",
        CommandGroup.keep,
        StoredPart.STORES,
        file="upkeep",
        arguments=arguments.DeleteArguments,
        page="docs/how-to/upkeep.md",
        examples=(
            "delete prices",
            "delete prices --yes",
        ),
    ),
    Command(
        "archive",
        "write a study as one file, to=FILE, which restore opens on any machine",
        CommandGroup.keep,
        file="archiving",
        arguments=arguments.ArchiveArguments,
        page="docs/how-to/upkeep.md",
        examples=(
            "archive prices",
            "archive prices to=prices.tar.gz",
        ),
    ),
    Command(
        "restore",
        "make a study of a file that archive wrote",
        CommandGroup.keep,
        file="archiving",
        arguments=arguments.RestoreArguments,
        bare_words=("file",),
        page="docs/how-to/upkeep.md",
        examples=(
            "restore prices.tar.gz",
            "restore prices.tar.gz study.name=prices-2",
        ),
    ),
    Command(
        "list",
        "show the studies in study.dir: state, trials, best value, age; the newest first",
        CommandGroup.look,
        bare_words=(),
        written_now="status",
    ),
    Command(
        "doctor",
        "print versions, devices, disk and MLflow's store, what is wrong and its remedy",
        CommandGroup.look,
        bare_words=(),
        is_support=True,
        page="docs/how-to/doctor.md",
        examples=("doctor", "doctor --json"),
    ),
)
COMMANDS = {command.name: command for command in _ALL}
"""The commands by name, in the order of the help."""
LISTED_COMMANDS = {
    name: command
    for name, command in COMMANDS.items()
    if not command.written_now and not command.is_support
}
"""The commands without the older names of some, and without `doctor`."""

MULTIRUN = (
    "--multirun is not used here: one sweep runs all trials. Leave it out, name the values as the "
    "search space (space.lr='interval(1e-4,1e-1)' space.batch_size=32,64) and the number of trials "
    "(study.n_trials=50)."
)


_COMMANDS_ELSEWHERE = {
    **dict.fromkeys(("fit", "train", "tune", "optimize", "search", "run"), "sweep"),
    **dict.fromkeys(("leaderboard", "results", "best"), "status NAME trials=all, or report NAME"),
    **dict.fromkeys(("score", "test"), "evaluate"),
    **dict.fromkeys(("serve", "deploy"), "release"),
    **dict.fromkeys(("dashboard", "mlflow"), "ui"),
}
"""Words that other tools have for our commands."""


def command_meant(word: str) -> str:
    """Return ` Did you mean …?` for a word that is no command, or an empty text."""
    meant = _COMMANDS_ELSEWHERE.get(word)
    return f" Did you mean {meant}?" if meant else closest_word(word, COMMANDS)


def closest_word(word: str, options: Iterable[str]) -> str:
    """Return ` Did you mean …?`, or an empty text where no option is close to `word`."""
    close_options = difflib.get_close_matches(word, list(options), n=1)
    return f" Did you mean {close_options[0]}?" if close_options else ""


def conf_dir() -> Path:
    """Return the folder `conf/`: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inner = package / "conf"
    return inner if inner.is_dir() else package.parent / "conf"


def default_options() -> dict[str, str]:
    """Return the options that the defaults list of `conf/sweep.yaml` names, by group."""
    text = (conf_dir() / "sweep.yaml").read_text("utf-8")
    return dict(re.findall(r"^  - (\w+): (\w+)", text, re.MULTILINE))
