"""Which tests `make check changed=true` takes for near to a change."""

from __future__ import annotations

import pytest

from tests.changed import ALWAYS, ROOT, module_files, named_modules, near_modules, near_tests


@pytest.mark.parametrize(
    ("max_imports", "near"),
    [(0, {"a"}), (1, {"a", "b"}), (2, {"a", "b", "c"}), (3, {"a", "b", "c", "d"})],
)
def test_a_module_is_near_to_what_it_reaches_by_few_imports(
    max_imports: int, near: set[str]
) -> None:
    named_by = {"a": set[str](), "b": {"a"}, "c": {"b"}, "d": {"c"}, "e": set[str]()}
    assert near_modules({"a"}, named_by, max_imports) == near


@pytest.mark.parametrize(
    "source",
    ["from automl.record import disk", "entry = 'automl.record.disk:flush_folder'"],
)
def test_a_module_is_named_by_an_import_or_by_an_entry(source: str) -> None:
    assert "automl.record.disk" in named_modules(source, set(module_files()))


def test_the_tests_of_a_module_of_its_importers_and_those_of_always_are_near() -> None:
    near = [*near_tests(["automl/data/cells.py"])]
    assert near[: len(ALWAYS)] == [*ALWAYS]
    assert "tests/data/test_kinds.py" in near
    assert "tests/devices/test_nvml.py" not in near
    assert all((ROOT / path).exists() for path in near)


def test_pages_and_settings_have_their_tests_too() -> None:
    assert "tests/end_to_end/test_readme.py" in {*near_tests(["docs/how-to/report.md"])}
    assert {"tests/cli", "tests/test_manual_lists.py"} <= {*near_tests(["conf/sampler/gp.yaml"])}
