"""Asks a program for its flags, where asking is safe: `--help`, before the first trial.

A script that parses no arguments runs its training on `--help`. So its source is read first, and it
is asked only where that imports a library that answers; in an empty folder, for ten seconds.

A command made ready by the sweep: its words checked, its program asked; for those who start it.

No torch here, as the sweep's own process has none.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from automl.config import Config
from automl.config.checks import check
from automl.config.objective import find_groups
from automl.errors import ConfigError
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
    """A Python program's source, as a command names it."""

    path: Path
    n_words: int
    """Of the command, up to and with its name."""
    as_module: bool = False
    """Named by `-m`."""


@dataclass(frozen=True)
class FlagInquiry:
    """What is known of a program's flags."""

    flags: ProgramFlags = field(default_factory=ProgramFlags)
    note: str | None = None
    """Why they were not checked, for people; None: they were, or nothing could be asked."""


def ask_program_flags(
    command: str, names: Sequence[str], folder: Path, seconds: float = ASK_SECONDS
) -> FlagInquiry:
    """How the program of a command spells the params that it is given as flags.

    Raises ConfigError where there is no such program or script, or it lacks such a param.
    """
    words = command_words(command)
    program = _program(command, words, folder)
    script = _script(command, words, program, folder)
    if script is None:
        return FlagInquiry()
    libraries = imported_packages(script.path)
    given = appended_params(words, names)
    if _HYDRA in libraries and not libraries & _ANSWERING:
        if given:
            raise ConfigError(
                f"objective.command={command}: {script.path.name} uses hydra, which takes params "
                f"as name=value: write {{{OVERRIDES}}} where they go."
            )
        return FlagInquiry()
    if not given or not libraries & _ANSWERING:
        return FlagInquiry()
    argv = _question(words, script, program)
    text = _answer(argv, folder, seconds)
    found = None if text is None else parse_help(text, given)
    if found is None:
        spelt = by_name(written_in(script.path), given)
        how = f"{Path(argv[-2]).name} --help told no flags within {seconds:g} s"
        return FlagInquiry(
            ProgramFlags(spelt), f"{how}: they are as its source has them, and not checked"
        )
    _check(command, given, found)
    return FlagInquiry(found.flags)


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
        f"{_instead(name)}"
    )


def _instead(name: str) -> str:
    if name.endswith(".py"):
        return f"A script is run by Python: python {name}"
    if name.startswith("python"):
        return f"This Python is {sys.executable}"
    return "Give its path, or install it where this environment finds it."


def _script(command: str, words: Sequence[str], program: str, folder: Path) -> PythonScript | None:
    """The first word that is a script or follows `-m`, else a program that is a script itself."""
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
    """The packages that a source imports, wherever; none where it cannot be read as Python."""
    names: list[str] = []
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return frozenset(name.partition(".")[0] for name in names)


def written_in(path: Path) -> tuple[str, ...]:
    """The flags that stand in a source as an argument of some call."""
    arguments = (arg for node in _nodes(path) if isinstance(node, ast.Call) for arg in node.args)
    texts = (arg.value for arg in arguments if isinstance(arg, ast.Constant))
    return tuple(text for text in texts if isinstance(text, str) and _FLAG.fullmatch(text))


def _nodes(path: Path) -> list[ast.AST]:
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            return []
        return list(ast.walk(ast.parse(path.read_bytes())))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []


# --- the question -------------------------------------------------------------------------------


def _question(words: Sequence[str], script: PythonScript, program: str) -> list[str]:
    """The command up to its first flag, then `--help`; without what launches several of it."""
    argv = list(words[: script.n_words])
    name = "-m " + argv[-1] if script.as_module else str(script.path.absolute())
    if script.n_words == 1:
        argv = [str(script.path.absolute())]
    elif Path(program).name.startswith(("python", "pypy")) and not set(_LAUNCHERS) & set(words):
        argv = [program, *argv[1:-1], argv[-1] if script.as_module else name]
    else:
        python = shutil.which("python", path=str(Path(program).parent)) or sys.executable
        argv = [python, *name.split(" ", 1)] if script.as_module else [python, name]
    for word in words[script.n_words :]:
        if word.startswith("-") or placeholders_in([word]):
            break
        argv.append(word)  # a subcommand
    return [*argv, "--help"]


def _answer(argv: Sequence[str], project: Path, seconds: float) -> str | None:
    """What it says in an empty folder; None: nothing in time, or an error."""
    path = os.pathsep.join(filter(None, (str(project), os.environ.get("PYTHONPATH"))))
    env = os.environ | {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    said = bytearray()
    ends = time.monotonic() + seconds
    with (
        tempfile.TemporaryDirectory(prefix="automl-help-") as empty,
        closing(ProgramKeeper()) as keeper,
        keeper.running(argv, env, Path(empty)) as program,
    ):
        while program.ended is None and time.monotonic() < ends:
            for number, chunk in program.read(max(0.0, ends - time.monotonic())):
                if number == 0 and len(said) < _MAX_HELP_BYTES:
                    said += chunk
        is_good = program.ended is not None and program.ended.status == 0
    return said.decode(errors="replace") if is_good else None


# --- the answer ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class HelpFlags:
    """A help text's flags."""

    known: tuple[str, ...]
    """All that there are, as they are written."""
    flags: ProgramFlags


def parse_help(text: str, names: Iterable[str]) -> HelpFlags | None:
    """The flags of a help text, and how those of these params are written; None: there are none."""
    known = tuple(dict.fromkeys(_FLAG.findall(text)))
    if set(known) <= {"--help", "--version"}:
        return None
    by_param = by_name(known, names)
    switches = dict(_switches(text))
    return HelpFlags(
        known,
        ProgramFlags(
            by_param, {n: switches[flag] for n, flag in by_param.items() if flag in switches}
        ),
    )


def by_name(known: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """The flag of each param that has one, be it dashes or underscores; its own name goes first."""
    by_normal = {_normal(flag): flag for flag in reversed(known)}
    return {
        name: f"--{name}" if f"--{name}" in known else by_normal[_normal(name)]
        for name in names
        if _normal(name) in by_normal
    }


def _switches(text: str) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
    """Flags without a value, as argparse's usage and click's list show them."""
    for match in (*_SWITCH.finditer(text), *_CLICKS_SWITCH.finditer(text)):
        yield match[1], (match[1], match[2])


def _check(command: str, given: Sequence[str], found: HelpFlags) -> None:
    missing = [name for name in given if name not in found.flags.by_param]
    if missing:
        known = ", ".join(flag for flag in found.known if flag != "--help")
        raise ConfigError(
            f"space.{missing[0]}: the program has no flag --{missing[0]}. It has: {known}. Call "
            f"the param as one of these, say in objective.command={command!r} by {{{missing[0]}}} "
            "where it goes, or take it out of the space."
        )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]", "_", name.lstrip("-")).lower()


@dataclass(frozen=True)
class CommandSetup:
    """What a process that starts programs is given. Picklable."""

    command: str
    pattern: str | None
    metric: str
    direction: Direction
    grace_seconds: float
    n_threads: int = 1
    flags: ProgramFlags = field(default_factory=ProgramFlags)
    inside: ProcessEntry | None = None
    """See `SessionSetup.inside`."""
    silent_seconds: float = 600.0
    """A program that reports nothing for so long is spoken of."""
    refit: bool = False
    """It is the final training of a study's winner, which the program is told."""


def prepare_program_flags(
    config: Config, names: Sequence[str], optional: Sequence[str]
) -> tuple[ProgramFlags, tuple[str, ...]]:
    """How the program spells its params, and lines for people. Raises ConfigError for a command
    that cannot be started so, or does not fit space and metric; `optional` params some trials lack.
    """
    command, pattern = config.objective.command, config.objective.pattern
    assert command is not None, "ObjectiveConfig refuses kind command without one"
    check_command_params(command, names, optional)
    if pattern is not None:
        groups = find_groups(pattern)
        check(
            normalize_name(config.study.metric) in map(normalize_name, groups),
            "study.metric",
            config.study.metric,
            f"objective.pattern names only {', '.join(groups)}. Set study.metric to one of these, "
            f"or call a group so.",
        )
    asked = ask_program_flags(command, names, Path.cwd())
    return asked.flags, () if asked.note is None else (asked.note,)


def make_command_setup(
    config: Config, flags: ProgramFlags, inside: ProcessEntry | None
) -> CommandSetup:
    """What a process that starts programs is given."""
    assert config.objective.command is not None, "ObjectiveConfig refuses kind command without one"
    return CommandSetup(
        config.objective.command,
        config.objective.pattern,
        config.study.metric,
        config.study.towards,
        config.study.grace_seconds,
        config.execution.threads_per_trial,
        flags,
        inside,
        refit=config.refit.of is not None,
    )
