"""Whole sweeps on a GPU: what admission does with memory that is really there. `make test-gpu`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.admission.requests import SEEN_PEAK_MARGIN
from automl.devices.device_reading import DeviceReader
from automl.trial import (
    FinishedOutcome,
    MemoryPeakMeasured,
    OutOfMemoryOutcome,
    RequestSource,
    TrialOutcome,
    TrialStarted,
)
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records

pytestmark = [pytest.mark.gpu]

GIB = 1024**3


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    yield program
    program.end_all()


def free_gib(reader: DeviceReader) -> float:
    return reader.read()[0].free_bytes / GIB


def records_of(
    program: Program, reader: DeviceReader, function: str, space: str, *words: str
) -> Records:
    """Of a sweep on the first GPU that has ended well."""
    done = program.run(
        "study.name=swept",
        f"devices.only=[{reader.read()[0].address.uuid}]",
        "sampler=random",
        "pruner=none",
        "objective=python",
        f"objective.target=tests.gpu.objectives:{function}",
        f"space={space}",
        *words,
    )
    assert done.code == 0, done.stdout + done.stderr
    return Records(program.folder, "swept")


def test_what_a_promise_has_left_goes_to_the_next_trial_while_the_first_goes_on(
    program: Program, reader: DeviceReader
) -> None:
    """Each holds two fifths of the GPU. Surveyed it asks for half as much again, so that two have
    no room until the first was seen at work: and it goes on only once the other is there."""
    gib = round(0.4 * free_gib(reader), 2)
    records = records_of(program, reader, "meet", f"{{gib: {gib}}}", "study.n_trials=2")
    assert all(isinstance(outcome, FinishedOutcome) for outcome in records.outcomes().values())
    first = min((e for e in records.events() if isinstance(e, TrialStarted)), key=lambda e: e.time)
    peaks = [e for e in records.of_trial(first.trial) if isinstance(e, MemoryPeakMeasured)]
    assert 0.99 * gib * GIB < peaks[0].peak_bytes < 1.05 * gib * GIB
    assert peaks[0].source is RequestSource.SURVEYED
    assert peaks[0].predicted_bytes is not None
    assert peaks[0].predicted_bytes > 1.4 * gib * GIB


def test_a_trial_that_runs_out_runs_again_with_more(program: Program, reader: DeviceReader) -> None:
    records = records_of(program, reader, "run_out_once", "{x: 1}", "study.n_trials=1")
    events = records.of_trial(0)
    outcomes = [event for event in events if isinstance(event, TrialOutcome)]
    assert [type(outcome) for outcome in outcomes] == [OutOfMemoryOutcome, FinishedOutcome]
    last = [event for event in events if isinstance(event, MemoryPeakMeasured)][-1]
    assert last.source is RequestSource.RAN_OUT
    assert records.trial_runs()[0].info.status == "FINISHED"


def test_idle_workers_end_for_a_trial_that_wants_nearly_all(
    program: Program, reader: DeviceReader
) -> None:
    """A trial like one that was measured asks for all but 1.5 GiB of what was free; up to four
    workers are idle when it comes, with a context each."""
    large = (free_gib(reader) - 1.5) / SEEN_PEAK_MARGIN
    records = records_of(
        program,
        reader,
        "take",
        f"{{gib: {{choices: [0.5, 0.51, {large:.2f}]}}}}",
        "study.n_trials=16",
        "study.seed=3",
        "admission.max_concurrent_trials=4",
    )
    assert all(isinstance(outcome, FinishedOutcome) for outcome in records.outcomes().values())
    peaks = [event for event in records.events() if isinstance(event, MemoryPeakMeasured)]
    seen = [p for p in peaks if p.source is RequestSource.SEEN and p.peak_bytes > large * GIB / 2]
    assert seen, "the large ones came once only: choose another seed"
