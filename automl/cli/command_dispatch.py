"""Does what a parsed command line asks for: answers one of its options, else runs its command.

Each import stands in its function, so that each answer loads only what it needs. The text of
`--help` is made here from `conf/` and the config classes, without Hydra, so that it is fast.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, conf_dir, default_options
from automl.config import Config, StudyConfig
from automl.errors import AutoMLError, ConfigError
from automl.models.family import load_families

KEYS = {
    "study": "name n_trials timeout_seconds metric direction seed dir",
    "data": "path target task test_path test_fraction folds sweep_rows source",
    "evaluate": "trials",
    "model": "target",
    "objective": "target command pattern",
    "training": "epochs precision schedule patience_epochs loss",
    "devices": "only",
    "admission": "request max_concurrent_trials",
    "tracking": "uri checkpoints",
    "refit": "trial members rows n_seeds",
    "export": "format",
    "register": "name",
    "predict": "input output members",
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
    chosen = default_options()
    folders = [folder for folder in (conf, config_dir) if folder is not None]
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


def run(arguments: CommandLine) -> int:
    """Do what the command line asks for, and return the exit code. Raises AutoMLError."""
    if arguments.completion:
        return _complete_in_shell(arguments)
    if arguments.help or arguments.version or arguments.hydra_options:
        return _answer_option(arguments)
    from automl.cli.compose import compose_or_join
    from automl.record.study_directory import holding_for
    from automl.terminal.machine_output import machine_output, write_answer

    answering = machine_output() if arguments.json else contextlib.nullcontext()
    with _keys_as_typed(arguments), answering as output:
        more: dict[str, Any] = {}
        if arguments.command == "edit":
            compose_stored = _stored_composer(arguments)
            # First: another edit that comes in between is then refused, and not taken back.
            more = {"stored": compose_stored(), "compose_stored": compose_stored}
        composed = compose_or_join(arguments)
        if arguments.command in ("ask", "tell", "resume"):
            more = {"compose_stored": _stored_composer_if_changed(arguments)}
        run_command = COMMANDS[arguments.command].load()
        with holding_for(arguments.command):
            code = run_command(composed.config, composed.stored_config, **more)
        if output is not None and output.answer is None:
            write_answer({"exit_code": code})
        return code


@contextlib.contextmanager
def _keys_as_typed(arguments: CommandLine) -> Iterator[None]:
    """Have the block's errors name the short keys that were typed."""
    try:
        yield
    except AutoMLError as error:
        message = str(error)
        for key, short in arguments.short_keys.items():
            message = re.sub(rf"(?<![\w.]){re.escape(key)}(?![\w.])", short, message)
        error.args = (message,)
        raise


def _answer_option(arguments: CommandLine) -> int:
    """Print what an option asks for; with `--json` as one object. Raises ConfigError."""
    if not arguments.json:
        sys.stdout.write(_option_text(arguments))
        return 0
    from automl.terminal.machine_output import machine_output, write_answer

    with machine_output():
        text = _option_text(arguments)
        if arguments.help:
            does = {command.name: command.does for command in COMMANDS.values()}
            write_answer({"help": text, "commands": does})
        elif "--cfg" in arguments.hydra_options and not arguments.version:
            import yaml

            write_answer({"config": yaml.safe_load(text)})
        else:
            write_answer({"text": text})
    return 0


def _option_text(arguments: CommandLine) -> str:
    if arguments.help:
        extra = None if arguments.config_dir is None else Path(arguments.config_dir)
        return help_text(conf_dir(), extra)
    if arguments.version:
        from importlib import metadata

        return f"automl {metadata.version('automl-sweep')}\n"
    printed = io.StringIO()
    # Hydra ends the process after its own help.
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        _show_hydra_answer(arguments)
    return printed.getvalue()


_PLACES = ("study.name=", "study.dir=", "study.storage=")


def _stored_composer(arguments: CommandLine) -> Callable[[], Config]:
    """Return a function that composes the settings which the study has when it is called."""
    from automl.cli.compose import compose_command

    where = tuple(word for word in arguments.overrides if word.startswith(_PLACES))
    return lambda: compose_command(replace(arguments, overrides=where)).config


def _stored_composer_if_changed(arguments: CommandLine) -> Callable[[], Config] | None:
    """Return `_stored_composer`; None where the line gives nothing but the command's own words."""
    own = (*_PLACES, f"{arguments.command}.")
    is_plain = all(word.startswith(own) for word in arguments.overrides)
    return None if is_plain else _stored_composer(arguments)


# --- answers that only Hydra can give -------------------------------------------------------------


def _show_hydra_answer(arguments: CommandLine) -> None:
    """Let Hydra print what `--cfg`, `--info` or `--hydra-help` asks for. Raises ConfigError."""
    from automl.cli.compose import compose_command, make_hydra_input
    from automl.cli.hydra_errors import explain_errors
    from automl.cli.space_overrides import override_text

    decided: list[str] = []
    if "--cfg" in arguments.hydra_options:
        training = compose_command(arguments).config.training  # or refuses what cannot work
        decided = [f"training.epochs={override_text(training.epochs)}"]
    with explain_errors(arguments.overrides):
        _, composition = make_hydra_input(arguments)
        options = list(arguments.hydra_options)
        if composition.config_dir is not None:
            options += ["--config-dir", str(composition.config_dir)]
        _hydra_main(composition.config_name, [*options, *composition.overrides, *decided])


def _complete_in_shell(arguments: CommandLine) -> int:
    """Print the shell function (`-sc install=bash`), or the candidates that it asks for at each Tab
    (`-sc query=bash`). Hydra's query knows neither commands nor `python -m`."""
    if Path(sys.argv[0]).suffix == ".py":
        raise ConfigError(
            'Completion is for the `automl` script: eval "$(automl -sc install=bash)"'
        )
    from hydra.errors import HydraException

    from automl.cli.config_keys import SCHEMA_SUFFIX
    from automl.cli.hydra_errors import explain_errors
    from automl.cli.schemas import register_schemas
    from automl.cli.stored_config import SWEEP_CONFIG

    register_schemas()
    words = ["--shell-completion", *arguments.overrides]
    if not any(line.startswith("query=") for line in arguments.overrides):
        with explain_errors(arguments.overrides):
            _hydra_main(SWEEP_CONFIG, words)
        return 0
    os.environ["COMP_LINE"], ours = _split_line(os.environ.get("COMP_LINE", ""))
    output = io.StringIO()
    # A half-typed line that cannot be read has no candidates; a message would break the prompt.
    with contextlib.suppress(HydraException), contextlib.redirect_stdout(output):
        _hydra_main(SWEEP_CONFIG, words)
    theirs = [word for word in output.getvalue().split() if not word.endswith(SCHEMA_SUFFIX)]
    sys.stdout.write(" ".join([*ours, *theirs]) + "\n")
    return 0


def _split_line(line: str) -> tuple[str, list[str]]:
    """Return the line without its command word, and the candidates that Hydra does not know."""
    from automl.record.studies import study_names

    words = line.split()
    done = line.endswith(" ")
    last = "" if done or not words else words[-1]
    ours: list[str] = []
    if len(words) < 2 or (len(words) == 2 and not done):
        ours = [command for command in COMMANDS if command.startswith(last)]
    elif words[1] in COMMANDS:
        words.pop(1)
    key = "study.name="
    if last.startswith(key):
        names = study_names(Path(StudyConfig.dir))
        ours += [f"{key}{name}" for name in names if name.startswith(last.removeprefix(key))]
    return " ".join(words) + (" " if done else ""), ours


def _hydra_main(config_name: str, words: list[str]) -> None:
    """Call `hydra.main` with a command line. The process ends with its answer, so what it reads,
    `sys.argv` and the environment, is not put back."""
    import hydra

    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes it raise errors instead of printing them
    sys.argv = [sys.argv[0], *words]
    main = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)
    main(lambda config: None)()
