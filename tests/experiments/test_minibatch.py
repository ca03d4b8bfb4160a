"""Experiment 005: the networks are those of the article, and short runs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experiments.conftest import EXPERIMENTS

README = EXPERIMENTS / "005-minibatch" / "README.md"
STATED = {  # by the authors, as the README says; they round
    "AlexNet-S": 62e6,
    "ResNet-50": 25e6,
    "FCN-R": 13_707_264,
    "AlexNet-R": 85_000,
    "ResNet-56": 0.85e6,
    "LSTM": 6e6,
}


@pytest.fixture
def networks(script: Callable[[str], Any]) -> Any:
    return script("005-minibatch/networks")


def test_networks_have_the_authors_numbers_of_parameters(networks: Any) -> None:
    found = {network.name: network.n_parameters() for network in networks.NETWORKS}
    assert {name: found[name] for name in STATED} == pytest.approx(STATED, rel=0.04)


def test_the_readme_has_each_network_with_its_parameters(networks: Any) -> None:
    rows = re.findall(r"^\| (\S+) \| ([\d,]{6,}) \| ([\d,]+) \|", README.read_text(), re.MULTILINE)
    assert rows == [
        (n.name, f"{n.n_parameters():,}", f"{n.batch_size:,}") for n in networks.NETWORKS
    ]


def test_networks_take_their_mini_batches(networks: Any) -> None:
    for network in networks.NETWORKS:
        batch = network.batch(2).to("meta")
        with torch.device("meta"):
            out = network.build()(batch.x)
        assert out.shape == (len(batch.y), network.n_classes), network.name


def test_a_short_run(
    script: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.json"
    minibatch = script("005-minibatch/minibatch")
    minibatch.main(["--quick", "--device", "cpu", "--json", str(results)])
    rows = json.loads(results.read_text())
    assert [row["network"] for row in rows] == ["AlexNet-R", "ResNet-56"]
    assert all(row["figures"]["CPU, 1 thread"]["median_ms"] > 0 for row in rows)
    assert "| ResNet-56 | 853,018 | 2 |" in capsys.readouterr().out


@pytest.mark.slow
def test_a_short_run_side_by_side(
    script: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    script("005-minibatch/side_by_side").main(["--quick", "--device", "cpu"])
    row = r"\| AlexNet-R \| 1 \| \S+ \(\d+\) \| \S+ \(\d+\) \| 1.00 \| \S+ \|"
    assert re.search(row, capsys.readouterr().out)


def test_copies_start_together_and_a_failure_is_raised(
    script: Callable[[str], Any],
) -> None:
    side_by_side = script("005-minibatch/side_by_side")
    spans = side_by_side.in_threads(side_by_side.Copy("AlexNet-R", 2, 20, "cpu"), 2)
    assert max(span.begun for span in spans) < min(span.ended for span in spans)
    with pytest.raises(ValueError, match="network 'VGG': there are FCN-S"):
        side_by_side.in_threads(side_by_side.Copy("VGG", 2, 1, "cpu"), 2)


def test_the_cause_of_a_failure_is_not_what_the_others_saw_of_it(
    script: Callable[[str], Any],
) -> None:
    cause = script("005-minibatch/side_by_side").cause
    seen, first, second = threading.BrokenBarrierError(), MemoryError("a"), MemoryError("b")
    assert cause([seen, first, second]) is first
    assert cause([seen]) is seen
