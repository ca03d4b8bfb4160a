"""The list of `make mutants` fits the files that it would break."""

from __future__ import annotations

import pytest

from tests.mutants.run import ROOT, Mutant, read_list


@pytest.mark.parametrize("mutant", read_list(), ids=lambda mutant: mutant.name)
def test_an_entry_fits_its_file_and_names_tests_that_are_there(mutant: Mutant) -> None:
    text = (ROOT / mutant.file).read_text()
    assert mutant.apply(text) != text
    for test in mutant.tests:
        path, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / path).read_text()


def test_an_entry_that_no_longer_fits_is_refused() -> None:
    mutant = Mutant("two", "a.py", "x", "y", ())
    with pytest.raises(ValueError, match=r"a\.py holds 'x' 2 times, not 1"):
        mutant.apply("x = x")
