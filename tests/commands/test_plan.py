"""`plan` says what a sweep would do, and writes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import automl.commands.gain
from automl.cli import main
from tests.end_to_end.conftest import snapshot

CPU = "devices.only=cpu"
ALIKE = "space={depth: 1, width: 16, batch_size: 64, lr: 0.01}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(folder: Path) -> None:
    rows = [f"{n},{'ab'[n % 2]},{n * 1.5}" for n in range(60)]
    (folder / "t.csv").write_text("\n".join(["size,town,price", *rows, ""]))


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["plan", *words]) == 0
    return capsys.readouterr().out


def test_the_built_in_training_is_planned_without_a_trace(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = plan(capsys, CPU, "admission.max_concurrent_trials=1", "n_trials=7")
    assert "trials            to 7 trials\n" in out
    assert "space.width       log:8..256\n" in out
    assert "judged after 3, 7\n" in out
    assert "arithmetic on its params" in out
    assert "no more at once: 1 at once is the most that cores and settings allow" in out
    assert "not known before one has run; measure=true" in out
    assert snapshot(folder) == {}


def test_a_table_is_planned_with_its_columns_and_families(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(folder)
    before = snapshot(folder)
    words = ("table=t.csv", "target=price", "timeout=10min", CPU, "timing_seconds=0")
    out = plan(capsys, *words)
    assert "arithmetic for a quiet core" in out
    assert " end within 10:00, without the start of the sweep: " in out
    assert "as many trials as 10:00 allow" in out
    assert "space of linear " in out
    assert "space.family" in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("town ")] == [
        ["town", "category"]
    ]
    assert snapshot(folder) == before


@pytest.mark.slow
def test_the_families_of_a_table_are_timed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(folder)
    before = snapshot(folder)
    words = ("table=t.csv", "target=price", "n_trials=5", CPU, "model.families=[linear,trees]")
    answer = json.loads(plan(capsys, *words, "--json", "timing_seconds=30"))
    assert snapshot(folder) == before
    linear, trees = answer["families"]
    assert [one["family"] for one in (linear, trees)] == ["linear", "trees"]
    assert linear["n_trials"] + trees["n_trials"] == 5
    assert min(linear["n_trials"], trees["n_trials"]) > 0
    for one in (linear, trees):
        assert one["known_by"] == "one that was timed to its end"
        assert 0 < one["seconds"] < 30
        assert one["peak_bytes"] > 0
        assert one["n_models"] > 1
        assert one["n_rows"] < 60
    own = sum(one["n_trials"] * one["seconds"] for one in (linear, trees))
    assert own / 2 <= answer["time"]["seconds"] - answer["time"]["start_seconds"] <= own + 1e-9
    assert answer["time"]["n_left"] == 5


def test_trials_of_a_family_that_ended_tell_its_time(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table(folder)
    words = ("table=t.csv", "target=price", CPU, "tracking.uri=none", "model=linear")
    assert main([*words, "name=a", "n_trials=2"]) == 0
    capsys.readouterr()
    answer = json.loads(plan(capsys, "a", "n_trials=8", "--json"))
    (linear,) = answer["families"]
    assert linear["known_by"] == "the mean of 2 trials that ended"
    assert linear["n_trials"] == answer["time"]["n_left"] == 6


def test_a_request_that_fits_once_runs_once(capsys: pytest.CaptureFixture[str]) -> None:
    answer = json.loads(plan(capsys, CPU, "admission.request=1TiB", "--json"))
    assert {size["memory_bytes"] for size in answer["sizes"]} == {2**40}
    assert {size["at_once"] for size in answer["sizes"]} == {0}
    assert all("1024" in size["limit"] or "TiB" in size["limit"] for size in answer["sizes"])
    assert answer["time"] is None


def test_trials_that_have_ended_tell_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = (CPU, "name=a", "n_trials=2", "epochs=2", "tracking.uri=none")
    assert main([*words, "admission.max_concurrent_trials=1"]) == 0
    capsys.readouterr()
    answer = json.loads(plan(capsys, "a", "n_trials=8", "--json"))
    assert answer["time"]["n_left"] == 6
    expected = 6 * answer["time"]["trial_seconds"]
    assert answer["time"]["seconds"] == pytest.approx(expected)
    assert {size["known_by"] for size in answer["sizes"]} <= {"learned", "seen"}
    assert answer["settings"]["study"].endswith("which has 2 trials")


@pytest.mark.slow
def test_a_measured_plan_tells_the_time_by_what_it_timed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automl.commands.gain, "WAY_SECONDS", 5.0)
    words = ["plan", "--json", ALIKE, "n_trials=6", CPU, "measure=true"]
    assert main(words) == 0
    answer = json.loads(capsys.readouterr().out)
    first = answer["timings"][0]["timing"]["trial_seconds"]
    assert answer["time"]["trial_seconds"] == pytest.approx(first)
    assert answer["time"]["n_left"] == 6
