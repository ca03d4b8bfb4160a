"""Rules of names, sentences and sizes, read from the syntax trees of the package."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import automl
from tests.manuals import section

PACKAGE = Path(automl.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

MAX_LINES = 450
MAX_FILES = 465
MAX_ENTRIES = 15
ENTRIES = {
    ".": 23,  # the parts themselves, each of which is a line of the layout
    "commands": 25,  # one file for each command
    "data": 20,
    "record": 16,
    "search/samplers": 17,  # one file for each sampler
}
"""Folders that may have more entries than `MAX_ENTRIES`, by their path in the package."""

FRAGMENT = re.compile(
    r"(Of|As|Those|Likewise|So|Who|Which|For|See|Such|Nobody|Whoever|To|In|On|By|From|None|It)\b"
)
"""The first words of docstrings that are no sentences."""
PARTICIPLE = re.compile(r"[A-Z][a-z]+(ed|en|ld|ft|st|nt|ept|own|ing)$")
"""Class names of one word that is a participle or a gerund (and some nouns that end alike)."""
NOUNS = {
    "Agent",  # the process on a node of a cluster
    "Client",
    "Forest",
    "Parent",
    "Placement",
    "Preprocessing",
    "Request",
    "Segment",
    "Study",
}
"""Nouns of the field that end as a participle does."""
MIN_WORDS = 4


@dataclass(frozen=True)
class Docstring:
    """A docstring of the package, or the text below an attribute, with its place."""

    place: str
    """`file:line`, relative to the package."""
    text: str


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


def class_files() -> Mapping[str, Set[str]]:
    """Return the files that define a class of each name, leading underscores left out."""
    found = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].add(str(path.relative_to(PACKAGE)))
    return found


def entries(folder: Path) -> list[str]:
    """Return the modules and packages of a folder."""
    there = (path for path in folder.iterdir() if path.suffix == ".py" or path.is_dir())
    return sorted(path.name for path in there if path.name not in ("__pycache__", "conf"))


def test_a_class_name_stands_for_one_class() -> None:
    assert {name: files for name, files in class_files().items() if len(files) > 1} == {}


def test_no_class_is_named_by_a_bare_participle() -> None:
    assert [name for name in class_files() if PARTICIPLE.match(name) and name not in NOUNS] == []


def test_every_docstring_is_a_sentence() -> None:
    """The first word is none that leaves the subject out, and there are at least four words."""
    found = [docstring for path in FILES for docstring in docstrings(path)]
    assert [d for d in found if FRAGMENT.match(d.text) or len(d.text.split()) < MIN_WORDS] == []


def test_no_file_is_longer_than_a_reader_takes_in() -> None:
    lines = {str(path): path.read_text("utf-8").count("\n") for path in FILES}
    assert {path: n for path, n in lines.items() if n > MAX_LINES} == {}
    assert len(FILES) <= MAX_FILES


def test_no_folder_has_more_entries_than_a_reader_takes_in() -> None:
    folders = {path.parent for path in FILES}
    counts = {str(folder.relative_to(PACKAGE)): len(entries(folder)) for folder in folders}
    assert {name: n for name, n in counts.items() if n > ENTRIES.get(name, MAX_ENTRIES)} == {}


def test_the_layout_names_every_folder_and_nothing_else() -> None:
    """Families, one folder each, are named by `conf/model/`."""
    layout = section("Layout").split("automl/\n", 1)[1].split("\nconf/", 1)[0]
    named = set(re.findall(r"(\w+)/", layout))
    folders = {path.parent.relative_to(PACKAGE) for path in FILES} - {Path()}
    families = {path for path in folders if path.parent == Path("models/families")}
    assert {path.name for path in folders - families} == named
