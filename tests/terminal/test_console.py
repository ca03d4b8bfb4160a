"""Tables and lines of commands: whole in a pipe, broken to fit on a screen."""

from __future__ import annotations

import io

import pytest

from automl.terminal.console import CommandConsole, open_console

NAME = "n" * 60
ROWS = [(NAME, "[b]1[/b]"), ("b", "2 of many")]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_row_is_a_line_but_on_a_screen_that_has_no_room(terminal: bool) -> None:
    console = CommandConsole(
        file=io.StringIO(), record=True, width=40, force_terminal=terminal, markup=False
    )
    console.table(("name", "figures"), ROWS)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert max(map(len, lines)) <= 40 if terminal else lines[1].split() == [NAME, "[b]1[/b]"]
    assert lines[-1].startswith("b  ")
    assert "".join(lines[1:]).count("n") == len(NAME) + 1, "nothing of it is left out"


def test_a_long_line_is_never_broken() -> None:
    out = io.StringIO()
    CommandConsole(file=out, width=40).say(f"{NAME} {NAME}")
    assert out.getvalue() == f"{NAME} {NAME}\n"


def test_no_name_turns_the_line_around() -> None:
    written = io.StringIO()
    console = CommandConsole(file=written, width=60)
    console.say("trial of \u202eevil\u202c and \x1b[2J")
    console.table(["name", "value"], [["a\u200fb", "1"]])
    assert written.getvalue().split("\n")[0] == "trial of �evil� and �[2J"
    assert "a�b" in written.getvalue()


def test_nothing_is_redrawn_in_the_terminal_of_a_notebooks_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    assert open_console().is_terminal
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert not open_console().is_terminal
