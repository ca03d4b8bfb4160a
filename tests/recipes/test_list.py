"""Each recipe says what it shows and how it is run, and has its row in the table beside it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.recipes.recipes import FOLDER, commands, recipe_files, says

README = FOLDER / "README.md"
TABLE = README.read_text("utf-8")
LINK = re.compile(r"\[`([^`]+)`\]\(([^)/]+)\)")
RECIPES = recipe_files()


def test_each_recipe_has_its_row_and_each_row_its_file() -> None:
    rows = [line.split("|")[1] for line in TABLE.splitlines() if line.startswith("| ")][1:]
    linked = [name for row in rows for _, name in LINK.findall(row)]
    assert all(shown == name for row in rows for shown, name in LINK.findall(row))
    there = {path.name for path in FOLDER.iterdir()} - {"__pycache__", README.name}
    assert sorted(linked) == sorted(there)
    assert all(map(LINK.search, rows))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_says_what_it_shows_and_ends_with_its_commands(recipe: Path) -> None:
    told, _, shown = says(recipe).partition("\n$ ")
    assert len(told.splitlines()) >= 3
    assert commands(f"$ {shown}")
    for command in commands(says(recipe)):
        words = shlex.split(command)
        assert words[0] == "python"
        assert any(recipe.name in word for word in words), "it runs the recipe itself"


def test_commands_are_those_behind_a_prompt_with_what_continues_them() -> None:
    text = "a program\n$ python a.py \\\n    --b '$ c'\nnot $ this\n$ python d.py\nend"
    assert commands(text) == ["python a.py \\\n    --b '$ c'", "python d.py"]
    assert commands("$ python a.py\\\n") == ["python a.py\\"]


def test_what_a_program_says_of_itself_is_its_docstring(tmp_path: Path) -> None:
    program = tmp_path / "a.py"
    program.write_text('"""One.\n\n$ python a.py \\\n    b\n"""\nx = """$ no\n"""\n')
    assert commands(says(program)) == ["python a.py \\\n    b"]
    program.write_text("x = 1\n")
    assert says(program) == ""
