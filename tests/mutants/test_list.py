"""The list of `make mutants` fits the files that it would break."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.mutants.run import ROOT, Mutant, read_list


def faults(mutant: Mutant) -> Iterator[str]:
    """What no longer fits of an entry."""
    try:
        text = _read(mutant.file)
        if mutant.apply(text) == text:
            yield f"{mutant.name} changes nothing"
    except (OSError, ValueError) as error:
        yield f"{mutant.name}: {error}"
    for test in mutant.tests:
        path, _, name = test.partition("::")
        if not (ROOT / path).exists() or f"def {name}" not in _read(path):
            yield f"{mutant.name}: {test} is not there"


@cache
def _read(path: str) -> str:
    return (ROOT / path).read_text()


def test_each_entry_fits_its_file_and_names_tests_that_are_there() -> None:
    assert [fault for mutant in read_list() for fault in faults(mutant)] == []


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [
        (Mutant("m", "Makefile", "no such line", "", ()), "m: Makefile holds"),
        (Mutant("m", "no_such.py", "a", "b", ()), "m: .* No such file"),
        (Mutant("m", "tests/places.py", "__future__", "__future__", ()), "m changes"),
        (Mutant("m", "tests/places.py", "a", "b", ("tests/no.py",)), "m: tests/no.py is not there"),
        (
            Mutant("m", "tests/places.py", "x", "y", ("tests/places.py::no",)),
            "places.py::no is not",
        ),
    ],
)
def test_what_does_not_fit_is_named(mutant: Mutant, fault: str) -> None:
    assert re.search(fault, "; ".join(faults(mutant)))


def test_an_entry_that_no_longer_fits_is_refused() -> None:
    mutant = Mutant("two", "a.py", "x", "y", ())
    with pytest.raises(ValueError, match=r"a\.py holds 'x' 2 times, not 1"):
        mutant.apply("x = x")
