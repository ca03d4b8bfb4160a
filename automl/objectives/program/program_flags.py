"""Checks the command of `objective=command` before the first trial, and learns its program's flags.

A Python program is asked with `--help`, if that is safe. A script that parses no arguments would
start its training. Its source is therefore read first, and it is asked only if it imports a library
that answers `--help`; in an empty folder, for at most ten seconds. No torch is imported, because
the sweep's own process has none. No trial is started here.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from automl.config import Config
from automl.config.checks import check_setting
from automl.config.objective import find_metric_groups
from automl.errors import ConfigError
from automl.objectives.code_digest import digest_of_file
from automl.objectives.program.printed_metrics import normalize_name
from automl.objectives.program.program_arguments import (
    OVERRIDES,
    ProgramFlags,
    appended_params,
    check_command_params,
    command_words,
    placeholders_in,
)
from automl.objectives.program.running_program import ProgramKeeper
from automl.objectives.program.wandb_log import WANDB_PATH
from automl.record.study_record import FILE_OF
from automl.trial import Direction, ProcessEntry

ASK_SECONDS = 10.0
_ANSWERING = frozenset(("argparse", "click", "typer"))
_HYDRA = "hydra"
_MAX_SOURCE_BYTES = 10_000_000
_MAX_HELP_BYTES = 1_000_000
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_FLAG = re.compile(r"(?<![\w-])--[A-Za-z][\w-]*+")
_SWITCH = re.compile(r"\[(?:-\w, )?(--[A-Za-z][\w-]*+)(?: \| (--no-[\w-]++))?\]")
_CLICKS_SWITCH = re.compile(r"(--[A-Za-z][\w-]*+) ?/ ?(--no-[\w-]++)")


@dataclass(frozen=True)
class PythonScript:
    """The source of a Python program, and the place of its name in the command."""

    path: Path
    n_words: int
    """Number of words of the command up to the script's name, that name included."""
    as_module: bool = False
    """The command names a module by `-m`."""


def ask_program_flags(
    command: str,
    names: Sequence[str],
    folder: Path,
    seconds: float = ASK_SECONDS,
    *,
    python_path: Sequence[str] = (),
) -> tuple[ProgramFlags, str | None]:
    """Return how the program of a command spells the params that are passed as flags, and a note.

    The note says why the flags are unchecked; None: they are checked, or the program cannot be
    asked. It is asked with `python_path` before its own. Raises ConfigError if there is no such
    program or script, or if it lacks a flag for a param.
    """
    words = command_words(command)
    program = _program(command, words, folder)
    script = _script(command, words, program, folder)
    if script is None:
        return ProgramFlags(), None
    libraries = imported_packages(script.path)
    as_flags = appended_params(words, names)
    if _HYDRA in libraries and not libraries & _ANSWERING:
        if as_flags:
            raise ConfigError(
                f"objective.command={command}: {script.path.name} uses hydra, which takes params "
                f"as name=value: write {{{OVERRIDES}}} where they go."
            )
        return ProgramFlags(), None
    if not as_flags or not libraries & _ANSWERING:
        return ProgramFlags(), None
    argv = _help_command(words, script, program)
    text = _help_output(argv, folder, seconds, python_path)
    known = () if text is None else flags_in_help(text)
    if not known:
        spelt = flags_by_param(flags_in_source(script.path), as_flags)
        return ProgramFlags(spelt), (
            f"{Path(argv[-2]).name} --help told no flags within {seconds:g} s: they are as its "
            "source has them, and not checked"
        )
    by_param = flags_by_param(known, as_flags)
    missing = [name for name in as_flags if name not in by_param]
    if missing and not _ignores_unknown_flags(script.path):
        shown = ", ".join(flag for flag in known if flag != "--help")
        raise ConfigError(
            f"space.{missing[0]}: the program has no flag --{missing[0]}. It has: {shown}. Call "
            f"the param as one of these, say in objective.command={command!r} by {{{missing[0]}}} "
            "where it goes, or take it out of the space."
        )
    switches = switches_in_help(text or "")
    return ProgramFlags(
        by_param, {name: switches[flag] for name, flag in by_param.items() if flag in switches}
    ), None


def digest_of_program(command: str, folder: Path) -> dict[str, str]:
    """Return the digest of the Python script of a command, or else of the first file that a word
    of it names; empty where there is none, as for an installed program."""
    words = command_words(command)
    script = _script(command, words, words[0], folder)
    paths = [folder / part for word in words for part in _words_within(word)]
    file = next((path for path in paths if path.is_file()), None) if script is None else script.path
    if file is None:
        return {}
    with suppress(OSError):
        return {f"{FILE_OF}objective.command": digest_of_file(file)}
    return {}


def _words_within(word: str) -> list[str]:
    """Return the words of a command within a command: `bash -c 'python train.py'`."""
    try:
        return shlex.split(word)
    except ValueError:
        return [word]


def refuse_missing_program(command: str) -> None:
    """Raise ConfigError if there is no such program or script. Starts nothing."""
    words, folder = command_words(command), Path.cwd()
    _script(command, words, _program(command, words, folder), folder)


# --- which script -------------------------------------------------------------------------------


def _program(command: str, words: Sequence[str], folder: Path) -> str:
    name = words[0]
    if placeholders_in([name]):
        return name
    found = shutil.which(name if "/" not in name else os.path.join(folder, name))
    if found is not None:
        return found
    key = f"objective.command={command}"
    if "/" in name and Path(folder, name).is_file():
        raise ConfigError(f"{key}: {name} is no program: chmod +x {name}, or name what runs it.")
    raise ConfigError(
        f"{key}: there is no program {name} {f'in {folder}' if '/' in name else 'on the PATH'}. "
        f"{_remedy(name)}"
    )


def _remedy(name: str) -> str:
    if name.endswith(".py"):
        return f"A script is run by Python: python {name}"
    if name.startswith("python"):
        return f"This Python is {sys.executable}"
    return "Give its path, or install it where this environment finds it."


def _script(command: str, words: Sequence[str], program: str, folder: Path) -> PythonScript | None:
    """Return the first word that is a script or follows `-m`, else the program if it is a script.

    Returns None if the command runs no Python script.
    """
    for n, word in enumerate(words):
        if placeholders_in([word]):
            continue
        if word.endswith(".py"):
            path = folder / word
            if path.is_file():
                return PythonScript(path, n + 1)
            if n and not words[n - 1].startswith("-"):
                raise ConfigError(
                    f"objective.command={command}: there is no {word} in {folder}. Start from the "
                    "folder it is in, or give its path."
                )
        if word == "-m" and n + 1 < len(words) and words[n + 1] not in _LAUNCHERS:
            found = _module(words[n + 1], folder)
            return None if found is None else PythonScript(found, n + 2, as_module=True)
    return PythonScript(Path(program), 1) if _is_python(Path(program)) else None


def _module(name: str, folder: Path) -> Path | None:
    base = folder.joinpath(*name.split("."))
    both = base.with_suffix(".py"), base / "__main__.py"
    return next((path for path in both if path.is_file()), None)


def _is_python(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def imported_packages(path: Path) -> frozenset[str]:
    """Return the packages that a source imports anywhere; none if it is not valid Python."""
    names: list[str] = []
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return frozenset(name.partition(".")[0] for name in names)


def flags_in_source(path: Path) -> tuple[str, ...]:
    """Return the flags that are arguments of any call in a source."""
    arguments = (arg for node in _nodes(path) if isinstance(node, ast.Call) for arg in node.args)
    texts = (arg.value for arg in arguments if isinstance(arg, ast.Constant))
    return tuple(text for text in texts if isinstance(text, str) and _FLAG.fullmatch(text))


def _ignores_unknown_flags(path: Path) -> bool:
    """Return whether a program leaves flags that it does not know unread (`parse_known_args`)."""
    return any(
        isinstance(node, ast.Attribute) and node.attr.startswith("parse_known")
        for node in _nodes(path)
    )


def _nodes(path: Path) -> list[ast.AST]:
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            return []
        return list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []


# --- the question -------------------------------------------------------------------------------


def _help_command(words: Sequence[str], script: PythonScript, program: str) -> list[str]:
    """Return the command up to its first flag, with `--help`, and without a launcher of ranks."""
    n_words = script.n_words
    named = ["-m", words[n_words - 1]] if script.as_module else [str(script.path.absolute())]
    if n_words == 1:
        argv = named
    elif Path(program).name.startswith(("python", "pypy")) and not set(_LAUNCHERS) & set(words):
        argv = [program, *words[1 : n_words - len(named)], *named]
    else:
        python = shutil.which("python", path=str(Path(program).parent)) or sys.executable
        argv = [python, *named]
    for word in words[n_words:]:
        if word.startswith("-") or placeholders_in([word]):
            break
        argv.append(word)  # a subcommand
    return [*argv, "--help"]


def _help_output(
    argv: Sequence[str], project: Path, seconds: float, python_path: Sequence[str]
) -> str | None:
    """Run a command in an empty folder, and return its output; None: it failed or took too long."""
    path = os.pathsep.join(filter(None, (*python_path, str(project), os.environ.get("PYTHONPATH"))))
    env = os.environ | {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    output = bytearray()
    ends = time.monotonic() + seconds
    with (
        tempfile.TemporaryDirectory(prefix="automl-help-") as empty,
        closing(ProgramKeeper()) as keeper,
        keeper.running(argv, env, Path(empty)) as program,
    ):
        while program.ended is None and time.monotonic() < ends:
            for number, chunk in program.read(max(0.0, ends - time.monotonic())):
                if number == 0 and len(output) < _MAX_HELP_BYTES:
                    output += chunk
        is_good = program.ended is not None and program.ended.status == 0
    return output.decode(errors="replace") if is_good else None


# --- the answer ---------------------------------------------------------------------------------


def flags_in_help(text: str) -> tuple[str, ...]:
    """Return all flags in a help text, as they are spelt there; none if it has only `--help`."""
    known = tuple(dict.fromkeys(_FLAG.findall(text)))
    return () if set(known) <= {"--help", "--version"} else known


def switches_in_help(text: str) -> dict[str, tuple[str, str | None]]:
    """Return the flags without a value, as the help of argparse and of click shows them.

    Each has the flag for true and the flag for false, if there is one.
    """
    found = (*_SWITCH.finditer(text), *_CLICKS_SWITCH.finditer(text))
    return {match[1]: (match[1], match[2]) for match in found}


def flags_by_param(known: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Return the flag of each param that has one, with dashes or underscores.

    A flag that is spelt exactly as the param wins.
    """
    by_normal = {_normal(flag): flag for flag in reversed(known)}
    return {
        name: f"--{name}" if f"--{name}" in known else by_normal[_normal(name)]
        for name in names
        if _normal(name) in by_normal
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]", "_", name.lstrip("-")).lower()


@dataclass(frozen=True)
class CommandSetup:
    """The arguments of a process that starts programs. Picklable."""

    command: str
    pattern: str | None
    metric: str
    direction: Direction
    grace_seconds: float
    n_threads: int = 1
    flags: ProgramFlags = field(default_factory=ProgramFlags)
    inside: ProcessEntry | None = None
    """Makes the stand-ins for libraries that the program logs through; None: it logs through none.
    """
    silent_seconds: float = 600.0
    """Seconds without a report after which a warning is logged."""
    refit: bool = False
    """The trials are the final training of a study's winner, which the program learns."""
    repeats: int = 1
    """Number of repeats of a trial, each with a seed of its own."""
    more_metrics: tuple[str, ...] = ()
    """The names of the study's other metrics, and of those with a limit."""
    wandb: bool = False
    """What the program logs to W&B goes to its trial."""


def prepare_program_flags(
    config: Config, names: Sequence[str], optional: Sequence[str], nullable: Sequence[str]
) -> tuple[ProgramFlags, tuple[str, ...]]:
    """Return how the program spells its params, and notes for the user.

    `optional` are the params that some trials lack, `nullable` those that are null in some. Raises
    ConfigError for a command that cannot be started, or does not fit the space or the metric.
    """
    command, pattern = config.objective.command, config.objective.pattern
    assert command is not None, "ObjectiveConfig refuses kind command without one"
    check_command_params(command, names, optional, nullable)
    if pattern is not None:
        groups = find_metric_groups(pattern)
        check_setting(
            normalize_name(config.study.leading_metric) in map(normalize_name, groups),
            "study.metric",
            config.study.leading_metric,
            f"objective.pattern names only {', '.join(groups)}. Set study.metric to one of these, "
            f"or call a group so.",
        )
    python_path = [WANDB_PATH] if config.objective.wandb else []
    flags, note = ask_program_flags(command, names, Path.cwd(), python_path=python_path)
    return flags, () if note is None else (note,)


def make_command_setup(
    config: Config, flags: ProgramFlags, inside: ProcessEntry | None
) -> CommandSetup:
    """Return the arguments of a process that starts programs."""
    assert config.objective.command is not None, "ObjectiveConfig refuses kind command without one"
    return CommandSetup(
        config.objective.command,
        config.objective.pattern,
        config.study.leading_metric,
        config.study.decided_direction,
        config.study.grace_seconds,
        config.execution.threads_per_trial,
        flags,
        inside,
        refit=config.refit is not None,
        repeats=config.study.repeats,
        more_metrics=config.study.metrics.more_names,
        wandb=config.objective.wandb,
    )
