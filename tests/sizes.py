"""Print what a reader of the package meets, to be looked at and not to be met (`make sizes`).

A file, a folder or a docstring that stands out here asks whether it is two ideas, or none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import automl

PACKAGE = Path(automl.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

MANY_LINES = 450
MANY_ENTRIES = 15
FEW_WORDS = 4
FRAGMENT = re.compile(
    r"(Of|As|Those|Likewise|So|Who|Which|For|See|Such|Nobody|Whoever|To|In|On|By|From|None|It)\b"
)
"""The first words of docstrings that are no sentences."""
CORE = ("prepare/*.py", "opening/*.py", "loop/*.py", "trials/*.py", "runner.py", "run_sweep.py")
OTHER_SUBJECTS = {"refit_task.py", "program_peaks.py"}
"""Files of the core about settings of refits, and about other programs on a GPU."""
DIFFERENCES = {
    "sharing": re.compile(r"\bshared\b|\b_?(others|peers)\b|NoPeerSweeps"),
    "nodes": re.compile(r"\b_?nodes (is|==)\b|ExecutionKind\.ray|NodesReader"),
    "refits": re.compile(r"\b_?(is_)?refit\b"),
}


@dataclass(frozen=True)
class Docstring:
    """A docstring of the package, or the text below an attribute, with its place."""

    place: str
    """`file:line`, relative to the package."""
    text: str

    @property
    def is_sentence(self) -> bool:
        """Whether the first word leaves no subject out, and there are at least four words."""
        return not FRAGMENT.match(self.text) and len(self.text.split()) >= FEW_WORDS


def docstrings(path: Path) -> Iterator[Docstring]:
    """Yield every docstring of a file, texts below attributes included."""
    place = path.relative_to(PACKAGE)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            text = ast.get_docstring(node)
            if text is not None:
                yield Docstring(f"{place}:{getattr(node, 'lineno', 1)}", text)
        if isinstance(node, ast.ClassDef | ast.Module):
            for above, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(above, ast.Assign | ast.AnnAssign) and isinstance(below, ast.Expr):
                    value = below.value
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        yield Docstring(f"{place}:{below.lineno}", value.value)


def entries(folder: Path) -> list[str]:
    """Return the modules and packages of a folder."""
    there = (path for path in folder.iterdir() if path.suffix == ".py" or path.is_dir())
    return sorted(path.name for path in there if path.name not in ("__pycache__", "conf"))


def core_conditions() -> dict[str, int]:
    """Return how many conditions of the core of `running/` ask in what sweeps differ, by subject.

    A condition is the test of an `if`, `while`, conditional expression or comprehension. Whoever
    adds one says why it belongs to no store, machines or purpose (`docs/contributing/running.md`).
    """
    running = PACKAGE / "running"
    files = [path for room in CORE for path in sorted(running.glob(room))]
    texts = [
        ast.unparse(test)
        for path in files
        if path.name not in OTHER_SUBJECTS
        for test in conditions(ast.parse(path.read_text("utf-8")))
    ]
    return {name: sum(bool(asks.search(t)) for t in texts) for name, asks in DIFFERENCES.items()}


def conditions(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the tests of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


def size_lines() -> Iterator[str]:
    """Yield the counts, then a line for each long file, full folder and doubtful docstring."""
    n_lines = {path: path.read_text("utf-8").count("\n") for path in FILES}
    n_entries = {folder: len(entries(folder)) for folder in {path.parent for path in FILES}}
    yield f"automl/: {len(FILES)} files, {sum(n_lines.values()):,} lines"
    asked = core_conditions()
    by_subject = ", ".join(f"{n} on {subject}" for subject, n in asked.items())
    yield f"conditions in the core of running/: {sum(asked.values())} ({by_subject})"
    for path, n in sorted(n_lines.items()):
        if n > MANY_LINES:
            yield f"{path.relative_to(PACKAGE)}: {n} lines"
    for folder, n in sorted(n_entries.items()):
        if n > MANY_ENTRIES:
            yield f"{folder.relative_to(PACKAGE)}/: {n} entries"
    for path in FILES:
        for docstring in docstrings(path):
            if not docstring.is_sentence:
                yield f"{docstring.place}: no sentence: {docstring.text.splitlines()[0]}"


if __name__ == "__main__":
    print("\n".join(size_lines()))  # noqa: T201
