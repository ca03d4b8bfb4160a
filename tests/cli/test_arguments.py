"""The command line taken apart, before any config is composed."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.cli.arguments import CommandLine, parse_command_line
from automl.cli.command_registry import COMMANDS, LISTED_COMMANDS
from automl.cli.command_steps import run_command
from automl.errors import ConfigError
from tests.cli.conftest import Compose


def test_no_word_means_sweep() -> None:
    assert parse_command_line([]) == CommandLine(command="sweep")


@pytest.mark.parametrize("first", ["study.n_trials=3", "~space.lr", "+space.x=1"])
def test_an_override_is_no_command(first: str) -> None:
    arguments = parse_command_line([first])
    assert (arguments.command, arguments.overrides) == ("sweep", (first,))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_first_word_is_the_command(command: str) -> None:
    assert parse_command_line([command, "study.name=a"]).command == command


def test_overrides_may_stand_around_options() -> None:
    arguments = parse_command_line(
        ["data=digits", "--config-dir", "mine", "study.seed=1", "-cn", "own"]
    )
    assert arguments.overrides == ("data=digits", "study.seed=1")
    assert (arguments.config_dir, arguments.config_name) == ("mine", "own")


def test_hydras_own_options_are_passed_on() -> None:
    arguments = parse_command_line(["--cfg", "job", "--resolve", "--package", "study"])
    assert arguments.hydra_options == ("--cfg", "job", "--package", "study", "--resolve")
    assert parse_command_line(["--info"]).hydra_options == ("--info", "all")


def test_an_unknown_command_gets_the_closest_and_the_list() -> None:
    with pytest.raises(ConfigError, match=r"stauts: .*Did you mean status\?"):
        parse_command_line(["stauts"])
    with pytest.raises(ConfigError, match=f"Commands: {', '.join(LISTED_COMMANDS)}\\."):
        parse_command_line(["fly"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["study.n_trials"], "study.n_trials: the value is missing: n_trials=…"),
        (["n_trials"], "n_trials: the value is missing: n_trials=…"),
        (["sampler"], "sampler: the value is missing: sampler=…"),
    ],
)
def test_a_key_without_a_value_is_no_unknown_command(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_command_line(words)
    assert str(caught.value) == message


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_multirun_is_refused_with_what_to_do(flag: str) -> None:
    with pytest.raises(ConfigError, match=r"Leave it out.*space\.lr=.*study\.n_trials"):
        parse_command_line([flag, "space.lr=1,2"])


@pytest.mark.parametrize("words", [["--fast"], ["--cfg", "jobs"], ["--config-dir"]])
def test_a_wrong_option_points_to_the_help(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="--help"):
        parse_command_line(words)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--n_trials", "8"], "Write n_trials=8."),
        (["--n-trials=8"], "Write n_trials=8."),
        (["--study.n_trials", "8", "data=digits"], "Write n_trials=8."),
        (["--data", "csv"], "Write data=csv."),
        (["--epochs", "data=digits"], "Write epochs=…."),
        (["--name=a b"], "Write 'name=a b'."),
        (["--n-trails=8"], "Did you mean n_trials=8?"),
        (["--lr", "0.1"], "A param of the search space is written space.lr=0.1."),
        (["--hepl"], "Did you mean --help?"),
    ],
)
def test_a_setting_written_as_an_option_gets_the_line_that_works(
    words: list[str], line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_command_line(words)
    assert f" {line} " in str(caught.value)


@pytest.mark.parametrize(
    ("words", "arguments", "overrides"),
    [
        (["enqueue", "params={lr: 0.1}"], ("params={lr: 0.1}",), ()),
        (["enqueue", "from=a.csv", "outside=true"], ("from=a.csv", "outside=true"), ()),
        (["stop", "trial=7", "as=pruned"], ("trial=7", "as=pruned"), ()),
        (["stop", "study.name=a", "copy=false"], ("copy=false",), ("study.name=a",)),
        (["delete", "study.name=a", "--yes"], ("yes=true",), ("study.name=a",)),
        (["compare", "a", "b"], ("studies=['a','b']",), ()),
        (["refit", "training.epochs=3", "rows=all"], ("rows=all",), ("training.epochs=3",)),
    ],
)
def test_arguments_of_a_command_are_no_overrides(
    words: list[str], arguments: tuple[str, ...], overrides: tuple[str, ...]
) -> None:
    line = parse_command_line(words)
    assert (line.arguments, line.overrides) == (arguments, overrides)


def test_an_argument_of_another_command_is_named_as_such() -> None:
    with pytest.raises(ConfigError, match="is no setting, but an argument of enqueue"):
        parse_command_line(["stop", "params={lr: 0.1}"])


def test_which_is_given_once() -> None:
    with pytest.raises(ConfigError, match=r"which=7 which=refit: give one .* which=7,refit"):
        parse_command_line(["evaluate", "which=7", "which=refit"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stop", "trial=1", "as=dead"], "as=dead: "),
        (["stop", "trial=-1"], "trial=-1: must be"),
        (["ask", "study.name=a", "n=0"], "n=0: must be from 1"),
        (["tell", "study.name=a", "trial=1", "state=well"], "state=well: "),
        (["enqueue", "study.name=a", "params=3"], "params=3: must be {NAME"),
    ],
)
def test_an_error_names_the_key_that_was_typed(
    words: list[str], message: str, folder: Path, composed: Compose
) -> None:
    study = folder / "studies" / "a"
    study.mkdir(parents=True)
    study.joinpath("config.yaml").write_text(composed("study.name=a").stored_config)
    with pytest.raises(ConfigError) as refused:
        run_command(parse_command_line(words))
    assert str(refused.value).startswith(message)
