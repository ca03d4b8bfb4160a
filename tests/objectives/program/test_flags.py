"""Which programs are asked for their flags, how, and what follows from their answers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from automl.errors import ConfigError
from automl.objectives.program.program_arguments import ProgramFlags
from automl.objectives.program.program_flags import (
    ask_program_flags,
    flags_by_param,
    flags_in_help,
    imported_packages,
    switches_in_help,
)

PYTHON = shlex.quote(sys.executable)
ARGPARSE = """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--lr", type=float)
parser.add_argument("--fast", action="store_true")
parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
parser.parse_args()
open("trained", "w")
"""
ANSWER = ProgramFlags(
    {"batch_size": "--batch-size", "lr": "--lr", "fast": "--fast", "amp": "--amp"},
    {"fast": ("--fast", None), "amp": ("--amp", "--no-amp")},
)


def test_an_argparse_script_is_asked(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ARGPARSE)
    flags, note = ask_program_flags(
        f"{PYTHON} train.py --lr {{lr}}", ["batch_size", "lr", "fast", "amp"], tmp_path
    )
    assert note is None
    by_param = {name: flag for name, flag in ANSWER.by_param.items() if name != "lr"}
    assert flags == ProgramFlags(by_param, ANSWER.switches)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_param_that_it_lacks_is_refused_with_those_it_has(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ARGPARSE)
    message = r"space.learning_rate: .* no flag --learning_rate. It has: .*--batch-size, --lr, "
    with pytest.raises(ConfigError, match=message):
        ask_program_flags(f"{PYTHON} train.py", ["learning_rate"], tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "open('trained', 'w')",
        "import argparses, sys\nopen('trained', 'w')",
        "from .argparse import x\n",
        "a = 'import argparse'",
        "import (",
        "\0",
    ],
)
def test_a_script_that_parses_nothing_is_not_asked(source: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(source)
    assert ask_program_flags(f"{PYTHON} train.py", ["lr"], tmp_path) == (ProgramFlags(), None)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_module_and_a_script_with_a_head_are_asked(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "train.py").write_text(ARGPARSE)
    (tmp_path / "train").write_text(f"#!{sys.executable}\n{ARGPARSE}")
    (tmp_path / "train").chmod(0o755)
    for command in (f"{PYTHON} -m package.train", "./train", f"env A=1 {PYTHON} -m package.train"):
        assert ask_program_flags(command, list(ANSWER.by_param), tmp_path) == (ANSWER, None)


def test_what_launches_several_of_a_script_is_not_started_for_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ARGPARSE)
    launcher = Path(sys.executable).with_name("torchrun")
    command = f"{launcher} --nproc_per_node={{n_devices}} train.py"
    assert ask_program_flags(command, list(ANSWER.by_param), tmp_path) == (ANSWER, None)


def test_one_that_does_not_answer_is_not_checked(tmp_path: Path) -> None:
    """What its source says of spelling still counts: importing torch may take that long."""
    (tmp_path / "train.py").write_text(f"import time\ntime.sleep(100)\n{ARGPARSE}")
    names = ["batch_size", "lr", "else"]
    flags, note = ask_program_flags(f"{PYTHON} train.py", names, tmp_path, seconds=0.2)
    assert flags == ProgramFlags({"batch_size": "--batch-size", "lr": "--lr"})
    assert note == (
        "train.py --help told no flags within 0.2 s: they are as its source has them, and not "
        "checked"
    )


def test_hydra_programs_take_overrides(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import hydra")
    with pytest.raises(ConfigError, match=r"uses hydra.*write \{overrides\} where they go"):
        ask_program_flags(f"{PYTHON} train.py", ["lr"], tmp_path)
    command = f"{PYTHON} train.py {{overrides}}"
    assert ask_program_flags(command, ["lr"], tmp_path) == (ProgramFlags(), None)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-program x", "there is no program no-such-program on the PATH"),
        ("./no-such x", "there is no program ./no-such in /"),
        ("train2.py", "A script is run by Python: python train2.py"),
        ("python9.9 train.py", f"This Python is {sys.executable}"),
        ("./train.py", r"\./train\.py is no program: chmod \+x"),
        (f"{PYTHON} missing.py", r"there is no missing\.py in /"),
    ],
)
def test_what_cannot_be_started_is_refused(command: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(ConfigError, match=message):
        ask_program_flags(command, ["lr"], tmp_path)


def test_imports_are_read_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("def f():\n    from click.core import x\nimport typer.main, os as o")
    assert imported_packages(path) == {"click", "typer", "os"}


CLICK = """Usage: train.py [OPTIONS]

Options:
  --lr FLOAT               Rate.  [default: 0.1]
  --fast / --no-fast       Whether.
  --batch_size INTEGER
  --help                   Show this message and exit.
"""


def test_clicks_answer() -> None:
    known = flags_in_help(CLICK)
    assert known == ("--lr", "--fast", "--no-fast", "--batch_size", "--help")
    assert flags_by_param(known, ["lr", "fast", "batch-size"]) == (
        {"lr": "--lr", "fast": "--fast", "batch-size": "--batch_size"}
    )
    assert switches_in_help(CLICK) == {"--fast": ("--fast", "--no-fast")}


def test_an_answer_without_flags_has_none() -> None:
    assert flags_in_help("usage: x [-h]\n  -h, --help  show") == ()


def test_one_name_in_two_spellings_is_taken_as_it_is() -> None:
    known = flags_in_help("--batch-size N --batch_size N")
    assert flags_by_param(known, ["batch_size"]) == {"batch_size": "--batch_size"}
