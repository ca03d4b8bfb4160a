"""The page of licences has each dependency, with what its own metadata says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib import metadata

import pytest

from tests.manuals import ROOT

PAGE = (ROOT / "docs" / "reference" / "licences.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
KINDS = {
    "Apache": r"Apache",
    "BSD": r"BSD",
    "LGPL": r"LGPL|Lesser General",
    "MIT": r"\bMIT\b",
    "Python Software Foundation": r"Python Software Foundation",
}
"""Each kind of licence of the page, and how metadata names it."""


def names(requirements: Iterable[str]) -> set[str]:
    found = {re.split(r"[\[>=<; ]", text)[0].lower() for text in requirements}
    return found - {"automl-sweep"}


def listed() -> dict[str, str]:
    """Return the licence of each distribution of the page."""
    cells = (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| "))
    rows = [[cell.strip() for cell in row][-2:] for row in cells]
    return {name: licence for name, licence in rows if licence not in ("", "licence")}


def test_each_dependency_is_listed() -> None:
    extras = PROJECT["optional-dependencies"]
    users = {name: texts for name, texts in extras.items() if name not in ("dev", "recipes")}
    wanted = names(PROJECT["dependencies"]).union(*map(names, users.values()))
    assert set(listed()) == wanted
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M)) == set(users)


@pytest.mark.parametrize(("name", "licence"), listed().items())
def test_the_licence_is_the_one_of_the_metadata(name: str, licence: str) -> None:
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    marks = [mark for mark in found.get_all("Classifier") or [] if mark.startswith("License")]
    said = [found[key][:200] for key in ("License-Expression", "License") if key in found]
    texts = [*said, *marks]
    first = next(kind for kind in KINDS if licence.strip("*").startswith(kind))
    assert re.search(KINDS[first], " ".join(texts)), texts
