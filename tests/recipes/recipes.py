"""The recipes as files: which there are, what each says of itself, and its commands."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "experiments" / "recipes"
PROMPT = "$ "


def recipe_files() -> list[Path]:
    """A program each; what else stands in the folder belongs to one of them."""
    return sorted(FOLDER.glob("*.py"))


def says(recipe: Path) -> str:
    """Its docstring."""
    text = recipe.read_text("utf-8")
    # As it is written: a backslash at a line's end would be gone from the docstring's value.
    node = ast.parse(text).body[0]
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return ""
    return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])


def commands(text: str) -> list[str]:
    """The lines that begin with `$ `, each with those that its backslashes continue it by."""
    found: list[str] = []
    goes_on = False
    for line in text.splitlines():
        if goes_on:
            found[-1] += f"\n{line}"
        elif line.startswith(PROMPT):
            found.append(line.removeprefix(PROMPT))
        else:
            continue
        goes_on = line.endswith("\\")
    return found
