"""The program as a process: exit codes, one message, help, completion, no heavy import."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from automl.cli import main
from automl.cli.arguments import parse_command_line
from automl.cli.command_registry import COMMANDS, LISTED_COMMANDS, CommandGroup, conf_dir
from automl.cli.help_text import argument_texts, help_text
from automl.cli.typed_arguments import type_arguments
from tests.cli.conftest import Compose
from tests.cli.test_stored import store

SCRIPT = Path(sys.executable).parent / "automl"


def run(*words: str, script: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    program = [str(SCRIPT)] if script else [sys.executable, "-m", "automl"]
    return subprocess.run(
        [*program, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment},
    )


def test_the_help_of_settings_names_every_option() -> None:
    done = run("help", "settings")
    assert (done.returncode, done.stderr) == (0, "")
    for file in conf_dir().glob("*/*.yaml"):
        assert file.stem in done.stdout
    assert "tpe*" in done.stdout
    assert "\n  n_trials " in done.stdout
    assert "[20]" in done.stdout


def test_the_first_screen_of_help_names_every_command_and_no_older_name() -> None:
    screen = help_text()
    listed = screen.partition("\nCommands ")[2].partition("\nMore ")[0]
    names = set(re.findall(r"\w+\b(?!:)", listed))
    assert names == {*LISTED_COMMANDS}
    assert names.isdisjoint({*COMMANDS} - {*LISTED_COMMANDS})


@pytest.mark.parametrize("group", CommandGroup)
def test_the_help_of_a_group_has_a_line_for_each_of_its_commands(group: CommandGroup) -> None:
    lines = help_text(group.value).splitlines()
    for command in LISTED_COMMANDS.values():
        has_line = any(line.startswith(f"  {command.name} ") for line in lines)
        assert has_line == (command.group is group), command.name


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_its_words_and_lines_that_work(name: str) -> None:
    text, command = help_text(name), COMMANDS[name]
    assert parse_command_line([name, "--help"]).help_topic == name
    assert parse_command_line(["help", name]).help_topic == name
    for argument in argument_texts(name):
        assert f"\n  {argument.word}=" in text
    if name in LISTED_COMMANDS:
        assert (conf_dir().parent / command.page).is_file()
        assert len(command.examples) >= 2
    for example in command.examples:
        assert example in text
        line = parse_command_line(shlex.split(example))
        if not any(word.startswith("from=") for word in line.arguments):  # its file is not here
            type_arguments(line.command, line.arguments)


def test_help_on_an_unknown_word_names_the_closest() -> None:
    done = run("help", "setings")
    assert done.returncode == 2
    assert "Did you mean settings?" in done.stderr


def test_help_lists_the_options_of_a_folder_of_the_users(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "prices.yaml").write_text("kind: csv\n")
    assert "prices" in run("help", "settings", "--config-dir", ".").stdout


@pytest.mark.parametrize(
    "words", [["study.n_trialz=3"], ["fly"], ["-m"], ["resume"], ["--cfg", "job", "study.seed=a"]]
)
def test_a_refusal_is_one_message_and_exit_2(words: list[str], folder: Path) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("automl: ")
    assert done.stderr.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_the_traceback_is_for_those_who_ask() -> None:
    done = run("sampler.trialz=3", AUTOML_DEBUG="1")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "ConfigAttributeError" in done.stderr
    assert done.stderr.strip().split("\n")[-1].startswith("automl: sampler.trialz: ")


def test_a_credential_is_not_echoed() -> None:
    done = run("tracking.uri=http://ann:s3cret@h?a=b", AUTOML_DEBUG="1")
    assert done.returncode == 2
    assert "http://ann:***@" in done.stderr
    assert "s3cret" not in done.stderr


def test_the_version_is_ours() -> None:
    assert run("--version").stdout.startswith("automl 0.")


def test_hydra_shows_the_config_and_where_it_comes_from(folder: Path) -> None:
    shown = run("--cfg", "job", "--package", "study", "study.n_trials=3", "space.lr=1,2")
    assert shown.returncode == 0
    assert "n_trials: 3" in shown.stdout
    shown = run("--cfg", "job", "--package", "training", "model=tabm")
    assert "epochs: auto" in shown.stdout, "decided, as the sweep will have it"
    own = run("--cfg", "hydra", "hydra.run.dir=elsewhere")
    assert own.returncode == 0
    assert "dir: elsewhere" in own.stdout
    (folder / "data").mkdir()
    (folder / "data" / "mine.yaml").write_text("kind: digits\n")
    tree = run("--info", "defaults", "--config-dir", ".", "data=mine", "hydra.verbose=true")
    assert tree.returncode == 0
    assert "data/mine" in tree.stdout
    assert [path.name for path in folder.iterdir()] == ["data"]


def test_resume_shows_the_stored_config(composed: Compose, folder: Path) -> None:
    store(folder, "a", composed("study.n_trials=7").stored_config)
    shown = run("resume", "study.name=a", "--cfg", "job", "study.seed=5")
    assert "n_trials: 7" in shown.stdout
    assert "seed: 5" in shown.stdout


HEAVY = ("torch", "mlflow", "optuna", "pandas", "sklearn", "numpy", "rich")


def test_composing_and_refusing_load_nothing_heavy() -> None:
    code = f"""
import json, sys
from automl.cli import main
from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
compose_command(parse_command_line(["data=digits", "space.lr=1,2"]))
codes = [main(["study.n_trialz=3"]), main(["fly"]), main(["data=csv"])]
json.dump([codes, [name for name in {HEAVY!r} if name in sys.modules]], sys.stdout)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(done.stdout) == [[2, 2, 2], []]


def test_help_and_a_wrong_word_are_answered_without_hydra() -> None:
    code = """
import contextlib, io, sys
from automl.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
for words in ("fly", "study.n_trials", "lr=0.1", "study.seeed=1", "sampler=bayes"):
    assert main([words]) == 2
sys.exit(any(name in sys.modules for name in ("hydra", "omegaconf", "yaml")))
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=300)


QUERY = ("-sc", "query=bash")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("automl resu", ["resume"]),
        ("automl study.n_tri", ["study.n_trials="]),
        ("automl status study.n_tri", ["study.n_trials="]),
        (
            "automl pruner=",
            [f"pruner={name}" for name in ("asha", "halving", "median", "none")],
        ),
        ("automl sweep pruner=none sampler=r", ["sampler=random"]),
        ("automl resume o", ["one", "objective.", "objective="]),
        ("automl refit one which=3 see", ["seeds="]),
        ("automl refit one which=3 sampler=r", ["sampler=random"]),
        ("automl space.lr='interval(", []),
    ],
)
def test_completion(
    line: str,
    found: list[str],
    folder: Path,
    composed: Compose,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store(folder, "one", composed().stored_config)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *QUERY])
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # which completion sets
    assert main(QUERY) == 0
    out, err = capsys.readouterr()
    assert (out.split(), err) == (found, "")


def test_commands_and_settings_complete_an_empty_line() -> None:
    done = run(*QUERY, script=True, COMP_LINE="automl ")
    assert (done.returncode, done.stderr) == (0, "")
    found = done.stdout.split()
    assert set(LISTED_COMMANDS) < set(found)
    assert set(found).isdisjoint(set(COMMANDS) - set(LISTED_COMMANDS))
    assert {"study.", "sampler="} < set(found)


def test_completion_is_installed_by_the_script_alone() -> None:
    assert "complete" in run("-sc", "install=bash", script=True).stdout
    assert "`automl` script" in run("-sc", "install=bash").stderr
