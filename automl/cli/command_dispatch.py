"""Does what a parsed command line asks for: answers one of its options, else runs its command.

Each import stands in its function, so that each answer loads only what it needs. The text of
`--help` is made here from `conf/` and the config classes, without Hydra, so that it is fast.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, conf_dir
from automl.config import Config
from automl.models.family import load_families

KEYS = (
    "study.name",
    "study.n_trials",
    "study.timeout_seconds",
    "study.metric",
    "study.direction",
    "study.seed",
    "study.dir",
    "data.path",
    "data.target",
    "data.task",
    "data.test_path",
    "data.test_fraction",
    "data.folds",
    "data.sweep_rows",
    "evaluate.trials",
    "data.source",
    "model.target",
    "objective.target",
    "objective.command",
    "objective.pattern",
    "training.epochs",
    "training.precision",
    "training.schedule",
    "training.patience_epochs",
    "training.loss",
    "devices.only",
    "admission.request",
    "admission.max_concurrent_trials",
    "tracking.uri",
    "tracking.checkpoints",
    "refit.trial",
    "refit.members",
    "refit.rows",
    "refit.n_seeds",
    "export.format",
    "register.name",
    "predict.input",
    "predict.output",
    "predict.members",
)
"""The most used keys, which `--help` lists; `--cfg job` prints all of them."""

HEAD = """\
Hyperparameter sweeps for PyTorch that fill the GPUs and never lose a trial.

    python -m automl [COMMAND] [KEY=VALUE | GROUP=OPTION ...] [--OPTION ...]
"""

GROUPS = "Groups (GROUP=OPTION; * is the default; model=default: auto with data=csv, else mlp)\n"

TAIL = """\
Search space (space.NAME=ENTRY; put entries with brackets in quotes)
  space.lr='interval(1e-4,1e-1)'             a number between two
  space.lr='tag(log,interval(1e-4,1e-1))'    the same on a log scale
  space.depth='range(2,9)'                   whole numbers 2 to 8
  space.batch_size=32,64                     one of these
  space.dropout=0.1                          fixed
  space.depth.high=6   ~space.depth          change one key; leave a param out
  space='{lr: {low: 1e-4, high: 1e-1, log: true}, width: {choices: [16, 64]}}'   the whole space

Options
  --cfg job             print the composed config; also hydra, all; --resolve fills in references
  --info defaults       show which files a config is made from; also searchpath, config, all
  --config-dir DIR      take groups and configs from DIR too
  --config-name NAME    start from NAME.yaml, which begins with: defaults: [sweep, _self_]
  --version             print the version
  -sc install=bash      print the shell completion: eval "$(automl -sc install=bash)"

Examples
  python -m automl
  python -m automl data=csv data.path=table.csv data.target=price study.n_trials=50
  python -m automl sampler=random pruner=none space.lr='interval(1e-3,1e-1)' study.name=try-1
  python -m automl objective=python objective.target=my_module:train space='{lr: {low: 0, high: 1}}'
  python -m automl objective=command objective.command='python train.py' space='{lr: 0.1}'
  python -m automl resume study.name=try-1 study.n_trials=100

Exit codes: 0 done, 1 the sweep failed, 2 a bad config or command line, 130 interrupted,
143 terminated, 141 stdout was closed. AUTOML_DEBUG=1 shows the traceback of an error.
"""


def help_text(conf: Path, config_dir: Path | None) -> str:
    """Return the whole text of `--help`; groups list the options of `conf` and of
    `--config-dir`."""
    sections = (
        HEAD,
        "Commands\n" + "".join(f"  {c.name:10} {c.does}\n" for c in COMMANDS.values()),
        GROUPS + "".join(_groups(conf, config_dir)),
        "Keys used most (KEY=VALUE; --cfg job prints all)\n" + "".join(_keys()),
        TAIL,
    )
    return "\n".join(sections)


def _groups(conf: Path, config_dir: Path | None) -> Iterator[str]:
    chosen = dict(re.findall(r"^  - (\w+): (\w+)", (conf / "sweep.yaml").read_text("utf-8"), re.M))
    folders = [folder for folder in (conf, config_dir) if folder is not None]
    for group in chosen:
        names = [
            path.stem for folder in folders for path in sorted((folder / group).glob("*.yaml"))
        ]
        listed = ", ".join(name + "*" * (name == chosen[group]) for name in names)
        yield f"  {group:10} {listed}\n"


def _keys() -> Iterator[str]:
    for key in KEYS:
        part, name = key.split(".")
        owner = _class_with_key(part, name)
        value = next(field.default for field in fields(owner) if field.name == name)
        default = _marked_names(value) if isinstance(value, Enum) else f"{value}"
        shown = "" if value is None or value is MISSING else f" [{default}]"
        yield f"  {key:32} {_docstrings_by_key(owner).get(name, '')}{shown}\n"


def _class_with_key(part: str, name: str) -> type[Any]:
    """Return the class that has the key: the class of the part, or of one of its options."""
    options = load_families().values() if part == "model" else ()
    own: type[Any] = type(getattr(Config(), part))
    return next((cls for cls in options if name in {f.name for f in fields(cls)}), own)


def _marked_names(value: Enum) -> str:
    """Return every name of an enum, the default marked with `*`."""
    return "|".join(member.name + "*" * (member is value) for member in type(value))


def _docstrings_by_key(owner: type[Any]) -> dict[str, str]:
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


def run(arguments: CommandLine) -> int:
    """Do what the command line asks for, and return the exit code. Raises AutoMLError."""
    if arguments.help:
        extra = None if arguments.config_dir is None else Path(arguments.config_dir)
        sys.stdout.write(help_text(conf_dir(), extra))
        return 0
    if arguments.version:
        sys.stdout.write(f"automl {metadata.version('automl-sweep')}\n")
        return 0
    if arguments.completion:
        from automl.cli.hydra_options import complete_in_shell

        return complete_in_shell(arguments)
    if arguments.hydra_options:
        from automl.cli.hydra_options import show_hydra_answer

        return show_hydra_answer(arguments)
    return _command(arguments)


def _command(arguments: CommandLine) -> int:
    from automl.cli.shared_study_config import compose_or_join

    composed = compose_or_join(arguments)
    run_command = COMMANDS[composed.command].load()
    return run_command(composed.config, composed.stored_config)
