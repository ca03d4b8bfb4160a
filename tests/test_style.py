"""Rules of names, read from the syntax trees of the package (`tests/sizes.py` counts the rest)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path

from tests.manuals import section
from tests.sizes import FILES, PACKAGE, size_lines

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


def class_files() -> Mapping[str, Set[str]]:
    """Return the files that define a class of each name, leading underscores left out."""
    found = defaultdict(set)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].add(str(path.relative_to(PACKAGE)))
    return found


def test_a_class_name_stands_for_one_class() -> None:
    assert {name: files for name, files in class_files().items() if len(files) > 1} == {}


def test_no_class_is_named_by_a_bare_participle() -> None:
    assert [name for name in class_files() if PARTICIPLE.match(name) and name not in NOUNS] == []


def test_the_sizes_of_the_package_are_printed() -> None:
    first = next(size_lines())
    assert re.fullmatch(r"automl/: \d+ files, [\d,]+ lines", first)


def test_the_layout_names_every_folder_and_nothing_else() -> None:
    """Families, one folder each, are named by `conf/model/`."""
    layout = section("Layout").split("automl/\n", 1)[1].split("\nconf/", 1)[0]
    named = set(re.findall(r"(\w+)/", layout))
    folders = {path.parent.relative_to(PACKAGE) for path in FILES} - {Path()}
    families = {path for path in folders if path.parent == Path("models/families")}
    assert {path.name for path in folders - families} == named
