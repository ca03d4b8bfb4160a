"""`status.json`: written by a sweep, read by commands from any other process."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from automl.config import UNLIMITED_N_TRIALS
from automl.errors import ConfigError
from automl.terminal.view import (
    MAX_BYTES,
    BestRow,
    DeviceRow,
    EnsembleRow,
    FailureRow,
    FamilyRow,
    RunningRow,
    SweepView,
    WaitingRow,
    read_view,
    spread_values,
    write_view,
)

VIEW = SweepView(
    study="brave-otter",
    directory="/tmp/studies/brave-otter",
    time=1.5,
    n_trials=20,
    metric="val_loss",
    counts={"running": 1, "finished": 3, "pruned": 4, "failed": 1, "interrupted": 2},
    best=BestRow(3, 0.033, {"depth": 3, "lr": 0.0283, "optimizer": "sgd", "nesterov": True}),
    ensemble=EnsembleRow("loss", 0.03, 2, (FamilyRow("mlp", 0.033, 1.0),)),
    devices=(DeviceRow("host", "cpu", 2**34, 2**30, load=0.5, cuda_number=0, pids=(1, 2)),),
    running=(RunningRow(8, "cpu", {"depth": 4}, 12.5, None, {}, 2**30, 2**29, 0.5),),
    waiting=(WaitingRow(None, "waiting: 1 trials run"), WaitingRow(9, "waiting: 3.0 GiB asked")),
    failures=(FailureRow(1, "no table", 2),),
    seconds=75.0,
    trouble="connection refused",
)


@pytest.mark.parametrize(
    "view",
    [
        VIEW,
        replace(VIEW, best=None, ensemble=None, running=(), ended="done"),
        replace(VIEW, repeats=(7, 2)),
        replace(VIEW, best_so_far=(0.5, 0.033), device_seconds=12.5),
    ],
)
def test_a_view_comes_back_from_its_file(tmp_path: Path, view: SweepView) -> None:
    path = tmp_path / "status.json"
    write_view(path, view)
    assert read_view(path) == view


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    plain = asdict(VIEW)
    del plain["best_so_far"], plain["device_seconds"]
    (tmp_path / "status.json").write_text(json.dumps(plain))
    assert read_view(tmp_path / "status.json") == VIEW


def test_of_many_values_a_few_are_kept_with_the_first_and_the_last() -> None:
    assert spread_values([]) == ()
    assert spread_values([2.0]) == (2.0,)
    assert spread_values([3.0, 2.0]) == (3.0, 2.0)
    many = spread_values([float(n) for n in range(10_000)])
    assert (len(many), many[0], many[-1]) == (40, 0.0, 9_999.0)


def test_only_final_states_count_as_ended() -> None:
    assert VIEW.n_ended == 8


def test_where_only_time_ends_a_study_its_time_is_what_goes_by() -> None:
    assert (VIEW.progress, VIEW.share_done) == ("8/20", 0.4)
    timed = replace(VIEW, n_trials=UNLIMITED_N_TRIALS, seconds_left=225.0)
    assert (timed.progress, timed.share_done) == ("8", 0.25)
    assert replace(timed, seconds_left=None).share_done == 1, "the last ones run on"
    assert replace(timed, seconds_left=None, counts={}).share_done == 0


def test_infinite_values_survive(tmp_path: Path) -> None:
    row = replace(VIEW.running[0], metrics={"val_loss": float("inf")})
    write_view(tmp_path / "status.json", replace(VIEW, running=(row,)))
    (back,) = read_view(tmp_path / "status.json").running
    assert back.metrics == {"val_loss": float("inf")}


def changed(**values: object) -> str:
    """What a sweep would write, but for some values."""
    return json.dumps(asdict(VIEW) | values)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"best": null}',
        "[" * 100_000,
        changed(counts=7),
        changed(counts={"finished": "many"}),
        changed(time=float("inf")),
        changed(n_trials="20"),
        changed(best={"number": 3, "value": 10**400, "params": {}}),
        changed(metric=["val_loss"]),
        changed(ended=3),
        changed(running=[asdict(VIEW.running[0]) | {"seconds": "long"}]),
        changed(running=[asdict(VIEW.running[0]) | {"device": 3}]),
        changed(waiting=[{"number": 3, "reason": ["x"]}]),
        changed(devices=[{"uuid": "x", "name": "y", "total_bytes": "z", "pids": []}]),
        changed(devices=[asdict(VIEW.devices[0]) | {"pids": ["1"]}]),
        changed(ensemble=asdict(EnsembleRow("loss", 1, 2)) | {"value": "low"}),
        changed(ensemble=asdict(EnsembleRow("loss", 1, 2, (FamilyRow("mlp", 1, None),)))),  # type: ignore[arg-type]
        changed(study="x" * MAX_BYTES),
    ],
    ids=range(21),
)
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "status.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"status\.json cannot be read"):
        read_view(path)


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "status.json")
    with pytest.raises(ConfigError, match=r"status\.json cannot be read"):
        read_view(tmp_path / "status.json")


def test_before_the_first_view_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no status yet"):
        read_view(tmp_path / "status.json")
