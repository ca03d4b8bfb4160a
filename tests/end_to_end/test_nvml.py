"""A driver that shows full GPUs: trials wait, everybody can see why, and go when there is room."""

from __future__ import annotations

import json
import os
import re
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records
from tests.nvml_stub.fixtures import LARGE, SMALL
from tests.nvml_stub.stub import GIB, GPU_IS_LOST, NvmlStub


def test_trials_wait_while_the_gpus_are_full(
    program: Program, call: Call, nvml_stub: NvmlStub
) -> None:
    for uuid in (SMALL, LARGE):
        nvml_stub.gpu(uuid).fill()
        nvml_stub.gpu(uuid).host([(os.getpid(), 7 * GIB)])
    program.environment = nvml_stub.environment(program.environment)
    sweep = program.start(
        "study.name=waits",
        "study.n_trials=3",
        "devices.only=nvml",
        "admission.request=2GiB",
        *objective_words("counts"),
    )
    records = Records(program.folder, "waits")
    sweep.wait_until((records.path / "status.json").exists, "a first status")
    sweep.wait_until(lambda: "waiting: " in call("status", "study.name=waits").stdout, "the reason")
    shown = " ".join(call("status", "study.name=waits").stdout.split())
    assert re.search(r"waiting: \d\.\d GiB asked, 0\.0 GiB room on GPU-", shown), shown
    assert f"held by pid {os.getpid()}" in shown
    assert records.params() == {}, "no trial has started"

    nvml_stub.gpu(LARGE).empty()
    done = sweep.wait()
    assert (done.code, done.stderr) == (0, "")
    assert "waits: 3 finished" in done.stdout
    devices = {run.data.tags["automl.device"] for run in records.trial_runs().values()}
    assert devices == {f"Stub A10 {LARGE}"}


@pytest.mark.slow
def test_a_refit_waits_while_the_gpus_are_full_and_says_for_whom(
    program: Program, call: Call, nvml_stub: NvmlStub
) -> None:
    named = ("study.name=waits", "tracking.uri=none")
    done = program.run(*named, "study.n_trials=1", "training.epochs=1", "devices.only=cpu")
    assert (done.code, done.stderr) == (0, "")
    for uuid in (SMALL, LARGE):
        nvml_stub.gpu(uuid).fill()
        nvml_stub.gpu(uuid).host([(os.getpid(), 7 * GIB)])
    program.environment = nvml_stub.environment(program.environment)
    refit = program.start(
        "refit", *named, "devices.only=nvml", "admission.request=2GiB", "parallel=none"
    )
    study = Records(program.folder, "waits").path

    def shown() -> str:
        folders = [path.parent for path in study.glob("refits/*/status.json")]
        if not folders:
            return ""
        at = (f"study.name={folders[0].name}", f"study.dir={folders[0].parent}")
        return " ".join(call("status", *at).stdout.split())

    refit.wait_until(lambda: "waiting: " in shown(), "the reason")
    assert f"held by pid {os.getpid()}" in shown()
    refit.signal(signal.SIGINT)
    assert refit.wait().code == 130
    assert not (study / "refit.pt").exists()
    done = program.run("refit", *named, "devices.only=cpu")
    assert (done.code, done.stderr) == (0, "")
    assert (study / "refit.pt").exists(), "the same refit goes on, elsewhere"


@pytest.mark.parametrize(("survey", "together"), [("auto", True), ("off", False)])
@pytest.mark.usefixtures("loaded_nvml_stub")
def test_what_was_surveyed_shares_a_gpu_and_what_was_not_has_it_to_itself(
    folder: Path, call: Call, survey: str, together: bool
) -> None:
    """Nothing is declared: the survey alone tells that two fit."""
    done = call(
        "study.name=nets",
        "study.n_trials=2",
        f"devices.only=[nvml,{LARGE}]",
        "pruner=none",
        f"admission.survey={survey}",
        "admission.max_concurrent_trials=2",
        "objective=python",
        "objective.target=tests.end_to_end.objectives:trains_a_network",
        f"space={{width: {{choices: [8, 16]}}, lr: {{low: 0.001, high: 0.01}}, meets: {together}}}",
    )
    assert (done.code, done.stderr) == (0, "")
    records = Records(folder, "nets")
    spans = []
    for number in range(2):
        events = records.of_trial(number)
        spans.append((events[0].time, events[-1].time))
    spans.sort()
    assert any(begin < end for (_, end), (begin, _) in pairwise(spans)) is together


@pytest.mark.slow
def test_trials_of_a_gpu_that_is_lost_go_on_elsewhere(
    program: Program, nvml_stub: NvmlStub
) -> None:
    program.environment = nvml_stub.environment(program.environment)
    sweep = program.start(
        "study.name=loses",
        "study.n_trials=4",
        "devices.only=nvml",
        "admission.request=512MiB",
        "admission.max_concurrent_trials=8",  # however busy the cores are
        *objective_words("falls_off"),
    )
    records = Records(program.folder, "loses")
    folder = records.path
    sweep.wait_until(lambda: len(list(folder.glob("on-*"))) == 4, "all run")
    assert len(list(folder.glob(f"on-{LARGE}-*"))) == 2
    nvml_stub.gpu(LARGE).fail(GPU_IS_LOST)
    write_whole(folder / "lost", LARGE)
    said = f"{LARGE} (Stub A10) takes no new trial: GPU is lost"
    sweep.wait_until(lambda: said in sweep.stdout, "that it was seen")
    sweep.wait_until(lambda: len(list(folder.glob("on-*"))) == 6, "they run elsewhere")
    (folder / "enough").touch()
    done = sweep.wait()
    assert (done.code, done.stderr) == (0, "")
    assert "loses: 4 finished" in done.stdout
    assert done.stdout.count(said) == 1
    devices = {run.data.tags["automl.device"] for run in records.trial_runs().values()}
    assert devices == {f"Stub T4 {SMALL}"}


def write_whole(path: Path, text: str) -> None:
    """At once, for those that look for it."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


@pytest.mark.slow
def test_two_sweeps_at_once_never_promise_more_than_a_gpu_has(
    program: Program, nvml_stub: NvmlStub
) -> None:
    """Their memory never shows on the stub: each knows of the other by its promises alone. LARGE
    has room for four of 4 GiB with their contexts, SMALL for one."""
    program.environment = nvml_stub.environment(program.environment)
    sweeps = [
        program.start(
            f"study.name={name}",
            "study.n_trials=5",
            "study.dir=studies",
            "devices.only=nvml",
            "admission.request=4GiB",
            "admission.max_concurrent_trials=8",
            "execution.recycle_after_trials=1",
            *objective_words("takes_its_time"),
        )
        for name in ("one", "two")
    ]
    for sweep in sweeps:
        done = sweep.wait()
        assert (done.code, done.stderr) == (0, "")
    spans = [
        (uuid, float(begin), float(end))
        for path in program.folder.glob("studies/*/spans")
        for uuid, begin, end in map(str.split, path.read_text().splitlines())
    ]
    assert len(spans) == 10
    assert max(most_at_once(spans, uuid) for uuid in (SMALL,)) <= 1
    assert 2 <= most_at_once(spans, LARGE) <= 4
    assert list(nvml_stub.promises.iterdir()) == []


def most_at_once(spans: list[tuple[str, float, float]], uuid: str) -> int:
    here = [(begin, end) for where, begin, end in spans if where == uuid]
    return max((sum(b <= at < e for b, e in here) for at, _ in here), default=0)


IN_RANKS = (
    "devices.only=nvml",
    "admission.devices_per_trial=2",
    "objective=python",
    "objective.target=tests.end_to_end.ranks:trains_in_ranks",
    "space={x: 1}",
)


@pytest.mark.slow
@pytest.mark.usefixtures("loaded_nvml_stub")
def test_a_trial_has_two_gpus_and_trains_in_a_process_for_each(folder: Path, call: Call) -> None:
    """DistributedDataParallel with Gloo: torch cannot use the stub's GPUs."""
    done = call("study.name=ranks", "study.n_trials=1", *IN_RANKS)
    assert (done.code, done.stderr) == (0, "")
    records = Records(folder, "ranks")
    both = f"Stub A10 {LARGE}, Stub T4 {SMALL}"
    assert {r.data.tags["automl.device"] for r in records.trial_runs().values()} == {both}
    kept = folder / "studies/ranks/checkpoints/trial-00000"
    told = [json.loads((kept / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["sees"] for rank in told] == [f"{LARGE},{SMALL}"] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("admission.devices_per_trial=3",),
            "admission.devices_per_trial: 3 devices (GPU) asked, but no machine has more than 2; "
            "give each trial fewer.",
        ),
        (
            ("admission.request=12GiB",),
            "admission.request: 12.0 GiB asked on each of 2 devices, but at most 6.8 GiB fit on "
            "each of the 2 largest devices (GPU-bbbb2222… (Stub T4)); declare less.",
        ),
    ],
)
@pytest.mark.usefixtures("loaded_nvml_stub")
def test_more_than_the_gpus_are_is_refused_before_anything_is_written(
    folder: Path, call: Call, words: tuple[str, ...], message: str
) -> None:
    done = call("study.name=much", *IN_RANKS, *words)
    assert (done.code, done.stderr) == (2, f"automl: {message}\n")
    assert not (folder / "studies").exists()
