"""The text of `--help`, made fast: from `conf/` and the config classes, without Hydra."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from automl.cli.command_registry import LISTED_COMMANDS, conf_dir, default_options
from automl.config import Config
from automl.models.family import load_families

KEYS = {
    "study": "name n_trials timeout_seconds metric direction seed dir",
    "data": "path target task test folds sweep_rows source",
    "model": "target",
    "objective": "target command pattern",
    "training": "epochs precision schedule patience_epochs loss",
    "devices": "only",
    "admission": "request max_concurrent_trials",
    "tracking": "uri checkpoints",
}
"""The most used keys by part, which `--help` lists; `--cfg job` prints all of them."""

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


def help_text(config_dir: str | None) -> str:
    """Return the whole text of `--help`; `config_dir` holds options besides those of `conf/`."""
    sections = (
        HEAD,
        "Commands\n" + "".join(f"  {c.name:10} {c.does}\n" for c in LISTED_COMMANDS.values()),
        GROUPS + "".join(_groups(config_dir)),
        "Keys used most (KEY=VALUE; --cfg job prints all)\n" + "".join(_keys()),
        TAIL,
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


def _keys() -> Iterator[str]:
    for part, names in KEYS.items():
        for name in names.split():
            owner = _class_with_key(part, name)
            value = next(field.default for field in fields(owner) if field.name == name)
            default = _marked_names(value) if isinstance(value, Enum) else f"{value}"
            shown = "" if value is None or value is MISSING else f" [{default}]"
            yield f"  {f'{part}.{name}':32} {_docstrings_by_key(owner).get(name, '')}{shown}\n"


def _class_with_key(part: str, name: str) -> type:
    """Return the class that has the key: the class of the part, or of one of its options."""
    options = load_families().values() if part == "model" else ()
    own: type = type(getattr(Config(), part))
    return next((cls for cls in options if name in {f.name for f in fields(cls)}), own)


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
