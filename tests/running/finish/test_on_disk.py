"""What a study is said to take on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.running.finish.result_tables import disk_usage_line


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
    assert disk_usage_line(tmp_path).startswith("on disk: 0.0 MB in ")
