"""The texts of help: a first screen, and one for each command and topic. They are made fast, from
`conf/` and the config classes, without Hydra."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from automl.cli.command_registry import (
    COMMANDS,
    LISTED_COMMANDS,
    Command,
    CommandGroup,
    closest_word,
    conf_dir,
    default_options,
)
from automl.cli.short_words import SHORT_BY_KEY
from automl.config import Config
from automl.config.command_arguments import argument_fields, is_listed
from automl.config.setting import Who, settings_of
from automl.errors import ConfigError

GROUPS = "Options (GROUP=OPTION; * is the default; model=default: auto with data=csv, else mlp)\n"

FIRST_WEEK = """\
automl: hyperparameter sweeps for PyTorch that fill the GPUs and never lose a trial.

A study is a set of trials; a trial is one set of params, trained once. The space says which params;
the sampler proposes; the pruner stops bad trials early. A sweep is one call that runs trials; a
study outlives it.

Start      automl table=FILE target=COLUMN
           automl train=FILE.py:FUNCTION space.NAME=RANGE
           automl train='PROGRAM' space.NAME=RANGE
Space      0.1..0.9   2..8   log:1e-4..1e-1   32,64,128   0.5 (fixed)
How long   n_trials=50   timeout=10min   Ctrl-C; automl resume NAME n_trials=100 goes on
What for   metric=val_auc direction=maximize
How        sampler=tpe|gp|random|grid   pruner=halving|asha|median|none   seed=0
Where      devices.only=cpu|gpu|0   admission.max_concurrent_trials=4   admission.request=3GiB
Look       automl status
           automl report      one HTML page
           automl ui          MLflow
Change     automl edit NAME space.lr=log:1e-3..1
           automl enqueue NAME params='{lr: 0.01}'
           automl stop NAME trial=7
Use        automl evaluate NAME
           automl predict NAME rows.csv to=scores.csv
           automl export NAME
In Python  automl.fit(frame, "price", timeout=60)
           automl.sweep(train, space={...}, n_trials=50)
           trial.report(epoch, {"val_loss": x})
           automl.load("studies/NAME")
"""
"""The words of the first week, which the manual's first page shows, too."""

SPACE = """\
Search space (space.NAME=RANGE)
  space.lr=1e-4..1e-1          a number between two
  space.lr=log:1e-4..1e-1      the same on a log scale
  space.depth=2..8             whole numbers, both ends included
  space.dropout=0..0.5/0.1     in steps
  space.batch_size=32,64       one of these
  space.dropout=0.1            fixed
  space.depth.high=6           change one key
  ~space.depth                 leave a param out

The same in Hydra's notation, in quotes, for those who come from hydra-optuna-sweeper
  'space.lr=interval(1e-4,1e-1)'             a number between two
  'space.lr=tag(log,interval(1e-4,1e-1))'    the same on a log scale
  'space.depth=range(2,9)'                   whole numbers 2 to 8, without the 9
  'space={lr: {low: 1e-4, high: 1e-1, log: true}, width: {choices: [16, 64]}}'   the whole space

Manual: docs/how-to/space.md
"""

OPTIONS = """\
Options
  --help                print this; COMMAND --help: the words of one command
  --json                answer by one JSON object
  --cfg job             print the composed config; also hydra, all; --resolve fills in references
  --info defaults       show which files a config is made from; also searchpath, config, all
  --config-dir DIR      take groups and configs from DIR too
  --config-name NAME    start from NAME.yaml, which begins with: defaults: [sweep, _self_]
  --version             print the version
  -sc install=bash      print the shell completion: eval "$(automl -sc install=bash)"

Exit codes: 0 done, 1 the sweep failed, 2 a bad config or command line, 130 interrupted,
143 terminated, 141 stdout was closed. AUTOML_DEBUG=1 shows the traceback of an error.
"""

TOPICS = (*(group.value for group in CommandGroup), "settings", "space")
"""The words of `automl help WORD`, beside the commands."""


def help_text(topic: str = "", config_dir: str | None = None) -> str:
    """Return the text of `--help`, or that of `automl help TOPIC`; `config_dir` holds options
    besides those of `conf/`. Raises ConfigError for a topic that is not there."""
    if not topic:
        return f"{FIRST_WEEK}\n{_group_lines()}More       automl help {'|'.join(TOPICS)}\n" + (
            "           automl COMMAND --help\n"
            "Trouble    automl doctor      what is wrong with the installation or the machine\n"
        )
    if topic in COMMANDS:
        return _command_help(COMMANDS[topic])
    if topic == "settings":
        return _settings_help(config_dir)
    if topic == "space":
        return SPACE
    if topic not in TOPICS:
        raise ConfigError(
            f"help {topic}: there is no help on this word.{closest_word(topic, _help_words())} "
            f"Words: {', '.join(_help_words())}."
        )
    listed = _commands_of(CommandGroup(topic))
    lines = "".join(f"  {command.name:9} {command.does}\n" for command in listed)
    return f"Commands to {topic}\n{lines}\nThe words of one: automl COMMAND --help\n"


def _help_words() -> tuple[str, ...]:
    return (*TOPICS, *LISTED_COMMANDS)


def _commands_of(group: CommandGroup) -> list[Command]:
    return [command for command in LISTED_COMMANDS.values() if command.group is group]


def _group_lines() -> str:
    names = {g.value: " ".join(c.name for c in _commands_of(g)) for g in CommandGroup}
    text = "; ".join(f"{group}: {listed}" for group, listed in names.items())
    return textwrap.fill(text, 96, initial_indent="Commands   ", subsequent_indent=" " * 11) + "\n"


def _command_help(command: Command) -> str:
    """Return what a command does, its words with their defaults, examples and its manual."""
    bare = "".join(f" {_bare_word(key)}" for key in command.bare_words)
    lines = [f"automl {command.name}{bare} [KEY=VALUE ...]\n", f"  {command.does}\n"]
    if command.written_now:
        lines.append(f"  It is now written: automl {command.written_now}\n")
    texts = argument_texts(command.name)
    if texts:
        lines.append("\nIts words\n")
        lines += [_word_lines(text.word, text.text, text.default) for text in texts]
    if command.examples:
        lines.append("\nExamples\n")
        lines += [f"  automl {example}\n" for example in command.examples]
    page = command.page or "docs/reference/commands.md"
    lines.append(f"\nSettings: automl help settings. Manual: {page}\n")
    return "".join(lines)


class ArgumentText(NamedTuple):
    """What help says about an argument of a command."""

    word: str
    default: str
    """The default as it is typed; `none` for no value."""
    text: str
    """The sentence that says what the argument is for."""


def argument_texts(command: str, *, unlisted: bool = False) -> list[ArgumentText]:
    """Return what help says about the arguments of a command, in the order of their class; those
    that hardly anyone gives only where `unlisted` asks for them."""
    cls = COMMANDS[command].arguments
    texts = class_docstrings(cls)
    by_name = {known.name: known for known in fields(cls)}
    return [
        ArgumentText(word, shown_default(by_name[name]), texts.get(name, ""))
        for word, name in argument_fields(cls).items()
        if unlisted or is_listed(cls, name)
    ]


def _bare_word(key: str) -> str:
    name = {"study.name": "NAME", "studies": "NAME ..."}
    return name.get(key, key.upper())


def _word_lines(word: str, text: str, default: str) -> str:
    """Return the lines about a word: its name and default, and behind it what it is for."""
    shown = "" if default in ("none", "[]", "") else f" [{default}]"
    return (
        textwrap.fill(
            f"{text}{shown}",
            100,
            initial_indent=f"  {f'{word}=':11}",
            subsequent_indent=" " * 13,
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
    )


def _settings_help(config_dir: str | None) -> str:
    sections = (
        "Settings that everyone uses (KEY=VALUE)\n" + "".join(_keys("all")),
        "Settings that some use (automl --cfg job prints all)\n" + "".join(_keys("some")),
        GROUPS + "".join(_groups(config_dir)),
        OPTIONS,
        "Manual: docs/how-to/settings.md\n",
    )
    return "\n".join(sections)


def _groups(config_dir: str | None) -> Iterator[str]:
    chosen = default_options()
    folders = [conf_dir(), *([] if config_dir is None else [Path(config_dir)])]
    for group in chosen:
        names = [
            path.stem for folder in folders for path in sorted((folder / group).glob("*.yaml"))
        ]
        listed = ", ".join(name + "*" * (name == chosen[group]) for name in names)
        yield f"  {group:10} {listed}\n"


def _keys(who: Who) -> Iterator[str]:
    """Yield a line for each setting that `who` changes."""
    sections = vars(Config())
    for key, changed_by in settings_of(Config):
        if changed_by != who:
            continue
        section, _, name = key.partition(".")
        owner: type = type(sections[section])
        default = next(known.default for known in fields(owner) if known.name == name)
        text = _marked_names(default) if isinstance(default, Enum) else str(default)
        shown = "" if default is None or default is MISSING else f" [{text}]"
        first, *_ = _docstrings_by_key(owner).get(name, "").split(". ")
        yield f"  {SHORT_BY_KEY.get(key, key):31} {first.rstrip('.')}.{shown}\n"


def _marked_names(value: Enum) -> str:
    """Return every name of an enum, the default marked with `*`."""
    return "|".join(member.name + "*" * (member is value) for member in type(value))


def shown_default(known: Field[Any]) -> str:
    """Return the default of a field as it is typed: `none` for no value, `[]` for an empty list."""
    if known.default_factory is not MISSING:
        return "[]"
    if isinstance(known.default, Enum):
        return known.default.name
    if isinstance(known.default, bool):
        return str(known.default).lower()
    return "none" if known.default is None else str(known.default) or '""'


def class_docstrings(cls: type) -> dict[str, str]:
    """Return the docstring under each field of a dataclass and of its bases, by the field's
    name."""
    found: dict[str, str] = {}
    for owner in reversed([base for base in cls.__mro__ if is_dataclass(base)]):
        found |= _docstrings_by_key(owner)
    return found


@functools.cache
def _docstrings_by_key(owner: type) -> dict[str, str]:
    """Return the docstring under each key of a config class, by the key's name."""
    (definition,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(definition, ast.ClassDef)
    docstrings = {}
    for entry, doc in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(entry, ast.AnnAssign)
            and isinstance(entry.target, ast.Name)
            and isinstance(doc, ast.Expr)
            and isinstance(doc.value, ast.Constant)
        ):
            docstrings[entry.target.id] = " ".join(str(doc.value.value).split())
    return docstrings
