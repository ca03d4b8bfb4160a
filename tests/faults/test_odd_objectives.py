"""Objectives that misbehave in 196 ways: each trial ends with a cause, and leaves nothing behind.

After each of them a probe runs, in the same worker where that still lives. It has to find the same
process as a probe in a fresh worker, and to compute the same bits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from automl.trial import TrialEvent
from tests.end_to_end.conftest import Call, call
from tests.end_to_end.records import Records
from tests.faults import odd_objectives as odd
from tests.faults.conftest import NotePromise
from tests.faults.process_probe import SEEN
from tests.fork_server import workers_start_soon
from tests.mlflow_store import folder

__all__ = ["call", "folder", "workers_start_soon"]

pytestmark = pytest.mark.slow

N_KINDS = 20 * int(os.environ.get("FAULT_POINTS", "2"))
"""How many kinds are tried, at most."""
ALWAYS = (
    "changes torch",
    "forks and returns in both",
    "holds the GIL",
    "returns the largest number",
)


def test_each_kind_ends_with_a_cause_and_the_next_trial_meets_nothing(
    folder: Path, call: Call, note_promise: NotePromise
) -> None:
    evenly = [*odd.KINDS][:: max(1, len(odd.KINDS) // N_KINDS)]
    names = list(dict.fromkeys([*ALWAYS, *evenly]))[:N_KINDS]
    numbers = [2 * [*odd.KINDS].index(name) for name in names]
    queue = ",".join(f"{{n: {n}}}" for n in (-1, *(m for n in numbers for m in (n, n + 1))))
    done = call(
        *("study.name=odd", f"study.n_trials={2 * len(names) + 1}", f"study.enqueue=[{queue}]"),
        *("objective=python", f"objective.target={odd.TARGET}", "sampler=random"),
        f"space={{n: {{low: -1, high: {2 * len(odd.KINDS)}}}}}",
        *("devices.only=cpu", "admission.max_concurrent_trials=1", "pruner=none"),
        f"execution.trial_timeout_seconds={odd.TIMEOUT_SECONDS}",
    )
    assert done.code == 0, done.stderr
    for trouble in ("Traceback", "cannot be shown", "; MLflow: "):
        assert trouble not in done.stdout + done.stderr
    records = Records(folder, "odd")
    trials = {values["n"]: number for number, values in records.params().items()}
    fresh, broken = seen(records, trials[-1]), {}
    for name, n in zip(names, numbers, strict=True):
        ended = records.outcomes().get(trials[n])
        after = seen(records, trials[n + 1])
        found = [*misfits(odd.KINDS[name], ended), *differences(fresh, after)]
        if found:
            broken[name] = found
    note_promise("odd objectives, and a probe after each", len(names), len(broken), len(odd.KINDS))
    assert broken == {}
    runs = records.trial_runs()
    assert {run.info.status for run in runs.values()} <= {"FINISHED", "FAILED", "KILLED"}
    assert len(runs) == 2 * len(names) + 1


def misfits(kind: odd.Kind, ended: TrialEvent | None) -> Iterator[str]:
    """Yield what is not as the kind says of a trial's end."""
    cause = getattr(ended, "cause", "")
    if type(ended).__name__ != kind.end:
        yield f"it ended otherwise: {ended!r:.300}"
    for wanted in kind.causes:
        if wanted not in cause:
            yield f"{wanted!r} is not in its cause: {cause!r:.200}"


def differences(fresh: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """Yield what a probe found that another, in a fresh process, did not."""
    if not after:
        yield "the probe after it did not end"
        return
    for what, value in fresh.items():
        if after[what] != value:
            yield f"the next trial finds another {what}: {after[what]:.200}, not {value:.200}"


def seen(records: Records, number: int) -> dict[str, str]:
    """Return what the probe of a trial found; empty: it did not come to its end."""
    path = records.path / "checkpoints" / f"trial-{number:05d}" / SEEN
    return dict(json.loads(path.read_text())) if path.exists() else {}
