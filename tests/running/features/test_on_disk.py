"""What a study is said to take on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.record.texts import size_text
from automl.running.features.scores import disk_usage_line


def test_all_files_and_the_largest_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Path("studies/any")
    for name, n_bytes in (("a/best.pt", 1_200_000), ("b/best.pt", 300_000), ("b/last.pt", 10**7)):
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        (study / name).write_bytes(bytes(n_bytes))
    (study / "gone").symlink_to("nowhere")
    assert (
        disk_usage_line(tmp_path / study)
        == "on disk: 11.5 MB in studies/any; its largest model 1.2 MB"
    )


def test_a_study_without_models(tmp_path: Path) -> None:
    assert disk_usage_line(tmp_path).startswith("on disk: 0 bytes in ")


@given(st.integers(0, 10**13), st.sampled_from([1000, 1024]))
def test_a_size_is_never_shown_as_none(size_bytes: int, base: int) -> None:
    """It is within a twentieth of the truth, in the largest unit that it fills."""
    number, unit = size_text(size_bytes, base).split()
    power = ["b", "k", "m", "g"].index(unit[0].lower())
    shown = float(number.replace(",", ""))
    assert shown * base**power == pytest.approx(size_bytes, rel=0.05)
    assert shown >= 1 or size_bytes == 0
    assert power == 3 or shown < base + 1
