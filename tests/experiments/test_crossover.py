"""Experiment 004: sizes, the answer drawn from figures, and a short run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from automl.config import Precision, Task
from automl.models.families.mlp.family import MLPParams
from automl.models.families.mlp.heavy import SIDE
from automl.models.networks.trainer import TrainingProblem


@pytest.fixture
def crossover(script: Callable[[str], Any]) -> Any:
    return script("004-crossover/crossover")


@pytest.mark.parametrize("depth", [0, 2, 7])
def test_the_stated_size_is_that_of_the_network(crossover: Any, depth: int) -> None:
    problem = TrainingProblem(
        Task.classification, 2, 2, 1.0, crossover.FAMILY, SIDE, Precision.float32
    )
    network = problem.network(MLPParams(depth=depth))
    model = network.build(torch.float32, torch.device("cpu"), 0)
    assert crossover.n_weights(depth) == sum(p.numel() for p in model.parameters())


def test_ten_layers_are_the_articles_700_000_parameters(crossover: Any) -> None:
    assert round(crossover.n_weights(10), -5) == 700_000


@pytest.mark.parametrize(
    ("fast", "depth"),
    [
        ({2: 2.0, 3: 2.0, 4: 2.0}, 4),
        ({2: 0.5, 3: 2.0, 4: 2.0}, 4),  # a lead that is lost again does not count
        ({2: 0.5, 3: 0.5, 4: 0.5}, 2),
        ({2: 2.0, 3: 2.0, 4: 3.0}, None),  # a tie is no lead
        ({3: 1.0}, 3),  # where only one was measured nothing is said
        ({}, None),
    ],
)
def test_the_crossover_is_where_one_stays_ahead(
    crossover: Any, fast: dict[int, float], depth: int | None
) -> None:
    assert crossover.faster_from({2: 1.0, 3: 1.5, 4: 3.0}, fast) == depth


def test_the_gpu_is_compared_with_each_way_of_the_cpu(crossover: Any) -> None:
    seconds = {  # by depth 2, 3, 4
        "CPU, 1 thread": (1.0, 4.0, 16.0),
        "CPU, 2 threads": (2.0, 3.0, 8.0),
        "CPU, packs": (0.1, 2.0),
        "GPU": (3.5, 3.5, 3.5),
        "GPU, packs": (0.2, 0.3, 0.4),
    }
    cells = [
        crossover.Cell(depth, 1, way, 1, 1, taken, taken, taken)
        for way, of_way in seconds.items()
        for depth, taken in enumerate(of_way, start=2)
    ]
    ways = crossover.ways_of("cuda:0", [1, 2])
    said = [line.split(" hidden")[0] for line in crossover.statements(cells, ways, _seconds)]
    assert said == [
        "2 threads of the CPU beat one: from 3",
        "one network alone beats a pack's share: not up to 3",
        "the GPU beats CPU, 1 thread: from 3",
        "the GPU beats CPU, 2 threads: from 4",
        "the GPU beats the CPU with packs: from 4",
        "the GPU with packs beats CPU, 1 thread: from 2",
        "with packs on both, the GPU beats the CPU: from 3",
    ]


def _seconds(cell: Any) -> float:
    seconds: float = cell.seconds
    return seconds


def test_a_short_run_and_its_picture(
    crossover: Any,
    script: Callable[[str], Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results, picture = tmp_path / "results.json", tmp_path / "picture.svg"
    crossover.main(["--quick", "--device", "cpu", "--json", str(results)])
    cells = json.loads(results.read_text())
    lanes = {(cell["depth"], cell["way"]): cell["n_lanes"] for cell in cells}
    assert lanes == {
        (depth, way): n for depth in (2, 3) for way, n in (("CPU, 1 thread", 1), ("CPU, packs", 32))
    }
    assert all(cell["seconds"] > 0 for cell in cells)
    printed = capsys.readouterr().out
    assert "| 3 | 76 |" in printed
    assert "no GPU here |" in printed
    assert "GPU against CPU: not measured, there was none." in printed

    script("004-crossover/draw_crossover").main([str(results), str(picture)])
    assert "CPU, packs" in picture.read_text(encoding="utf-8")
