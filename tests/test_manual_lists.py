"""Where a page lists what the code has a table of, both have the same names."""

from __future__ import annotations

import dataclasses
import enum
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.cli.command_registry import LISTED_COMMANDS
from automl.config import Config, ExportFormat
from automl.config.command_arguments import argument_fields, argument_word
from automl.config.metrics import LOSSES
from automl.models.family import load_families
from tests.manuals import MANUALS, ROOT, section

CODE = ROOT / "automl"
WORD = r'`(?:[\w.]+=)?"?(\w+)"?`'
OPTIONS = {
    group: {file.stem for file in (ROOT / "conf" / group).glob("*.yaml")}
    for group in ("sampler", "pruner", "model")
}
"""The options of each group that a page lists."""


def rows(page: Path, begin: str) -> list[list[str]]:
    """Return the cells of the rows of tables whose first cell begins so."""
    lines = page.read_text("utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith(f"| {begin}")]


def words(cells: str) -> set[str]:
    return set(re.findall(WORD, cells))


def enum_settings(cls: type = Config, prefix: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield each setting that has one of a few words, with these."""
    for name, hint in typing.get_type_hints(cls).items():
        for kind in typing.get_args(hint) or (hint,):
            if isinstance(kind, type) and issubclass(kind, enum.Enum):
                yield f"{prefix}{name}", {str(member.value) for member in kind}
            elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
                yield from enum_settings(kind, f"{prefix}{name}.")


@pytest.mark.parametrize("group", ["sampler", "pruner"])
def test_a_table_of_options_has_all_of_them(group: str) -> None:
    modules = {file.stem for file in (CODE / "search" / f"{group}s").glob("*.py")}
    assert OPTIONS[group] <= modules
    found = {page: rows(page, f"`{group}=") for page in MANUALS}
    pages = [page for page, lists in found.items() if len(lists) > 2]
    assert ROOT / "docs" / "how-to" / f"{group}.md" in pages
    assert ROOT / "docs" / "reference" / "options.md" in pages
    for page in pages:
        listed = set().union(*(words(cells[0]) for cells in found[page]))
        assert OPTIONS[group] <= listed <= OPTIONS[group] | OPTIONS["pruner"], page


def test_the_families_are_those_of_the_page() -> None:
    families = set(load_families())
    page = (ROOT / "docs" / "how-to" / "families.md").read_text("utf-8")
    table = page.split("| `model=` | is |", 1)[1].split("\n\n", 1)[0]
    listed = {name for line in table.splitlines()[2:] for name in words(line.split(" | ")[0])}
    assert listed == OPTIONS["model"] - {"default"} == families | {"auto"}


def test_the_export_formats_are_those_of_the_page() -> None:
    table = [line for line in section("Formats").splitlines() if line.startswith("|")]
    formats = {kind.value for kind in ExportFormat}
    assert set().union(*(words(line.split(" | ")[0]) for line in table[2:])) == formats
    by_family = {name: family.export_formats for name, family in load_families().items()}
    columns = table[0].split(" | ")
    exported = {name for name, kinds in by_family.items() if kinds} - {"auto"}
    assert words(" ".join(columns[1:])) == exported
    for line in table[2:]:
        cells = line.split(" | ")
        (kind,) = words(cells[0])
        for column, cell in zip(columns[1:4], cells[1:4], strict=True):
            for name in words(column):
                assert (ExportFormat(kind) in by_family[name]) == (cell != "no"), (name, kind)


def test_the_losses_are_those_of_their_settings_row() -> None:
    (cells,) = rows(ROOT / "docs" / "reference" / "settings.md", "`training.loss`")
    named = {loss.partition(":")[0] for loss in LOSSES}
    assert {name for name in named if name not in cells[1]} == set()


def enum_arguments() -> dict[str, set[str]]:
    """Return the words of each argument of a command that has one of a few, by the argument's own
    word; without those that are a text for another command."""
    found: dict[str, set[str]] = {}
    texts: set[str] = set()
    for cls in {command.arguments for command in LISTED_COMMANDS.values()}:
        chosen = {argument_word(name): values for name, values in enum_settings(cls)}
        for word, values in chosen.items():
            found[word] = found.get(word, set()) | values
        texts |= argument_fields(cls).keys() - chosen.keys()
    return {word: values for word, values in found.items() if word not in texts}


def test_a_setting_of_a_few_words_has_all_of_them_in_its_rows() -> None:
    compared = 0
    for key, values in (*enum_settings(), *enum_arguments().items()):
        found = [cells for page in MANUALS for cells in rows(page, "`") if f"`{key}" in cells[0]]
        found = [cells for cells in found if len(cells) in (3, 4)]
        if not found:
            continue
        listed = set().union(*(words(" ".join(cells)) for cells in found))
        assert values <= listed, f"{key}: {values - listed} in no row"
        for cell in (cells[0] for cells in found if cells[0].startswith(f"`{key}=")):
            alone = cell if "." not in cell.removeprefix(f"`{key}") else cell.split(",")[0]
            assert words(alone) <= values, cell
        compared += 1
    assert compared >= 12
