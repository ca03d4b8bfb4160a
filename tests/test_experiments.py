"""Each experiment has its README, and each of its configs composes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command

FOLDERS = sorted(
    p for p in (Path(__file__).parents[1] / "experiments").glob("[0-9]*") if p.is_dir()
)
CONFIGS = [config for folder in FOLDERS for config in sorted(folder.glob("conf/*.yaml"))]
PARTS = ("Question", "Command", "Verdict")


def test_experiments_are_found() -> None:
    assert "000-pruning" in {folder.name for folder in FOLDERS}
    assert CONFIGS


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_config_composes(config: Path) -> None:
    words = ["--config-dir", str(config.parent), "--config-name", config.stem]
    words += ["data.path=x.csv"] if "data: csv" in config.read_text("utf-8") else []
    assert compose_command(parse_command_line(words)).config.space


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_readme_has_the_parts_of_an_experiment(folder: Path) -> None:
    readme = folder / "README.md"
    assert readme.exists(), f"{readme} is what an experiment is for"
    titles = re.findall(r"^## (.*)$", readme.read_text(encoding="utf-8"), re.MULTILINE)
    missing = [part for part in PARTS if not any(title.startswith(part) for title in titles)]
    assert missing == []
