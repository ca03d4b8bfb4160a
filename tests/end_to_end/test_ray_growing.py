"""A Ray cluster with an autoscaler: nodes are added while trials wait, and let go at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from automl.trial import TrialStarted
from tests.end_to_end.program import Program, Running, objective_words, wait_until
from tests.end_to_end.records import Records
from tests.execution.cluster.clusters import growing_cluster, is_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
N_TRIALS = 7


def requests_of(address: str) -> Callable[[], list[object]]:
    """Return what reads the bundles that the autoscaler is asked for; the head says it."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

    client = GcsClient(address=address)

    def read() -> list[object]:
        text = client.internal_kv_get(b"autoscaler_resource_request", None)
        found: list[object] = json.loads(text or b"[]")
        return found

    return read


@pytest.mark.parametrize("ends", ["all done", "kill -9"])
def test_nodes_come_while_trials_wait_and_nothing_is_asked_for_however_it_ends(
    program: Program, ends: str
) -> None:
    program.environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    records = Records(program.folder, "growing")
    with growing_cluster(1) as address:
        # Nodes on one machine share a folder, where each unpacks the user's code anew: whoever is
        # just beginning to work in it would lose it. On machines of their own each has its own.
        (monitor,) = (p for p in of_cluster(address) if is_of(p, "autoscaler/_private/monitor.py"))
        monitor.suspend()
        sweep = program.start(
            *("study.name=growing", f"study.n_trials={N_TRIALS}", "tracking.uri=none"),
            *("execution=ray", "devices.only=cpu", "pruner=none", f"ray.address={address}"),
            *objective_words("ends_when_told"),
        )

        def devices() -> set[str]:
            return {e.device for e in records.events() if isinstance(e, TrialStarted)}

        sweep.wait_until(lambda: records.n_lines() > 12, "some reports")
        monitor.resume()
        sweep.wait_until(lambda: len(devices()) == 2, "trials on a node that was added")
        requested = requests_of(address)
        asked = requested()
        assert len(asked) >= 2, "what it was, and more"
        assert all(bundle == {"CPU": 1.0} for bundle in asked)
        end(sweep, ends, records.path)
        wait_until(lambda: not requested(), "the end of the request")
        wait_until(lambda: not guards(address), "the end of who withdraws it")


def end(sweep: Running, how: str, study: Path) -> None:
    """Have it end so, and return when it has."""
    if how == "kill -9":
        sweep.kill()
        return
    (study / "enough").touch()
    done = sweep.wait()
    assert (done.code, done.stderr) == (0, "")
    assert f"growing: {N_TRIALS} finished" in done.stdout


def of_cluster(address: str) -> list[psutil.Process]:
    """Its processes, and those that were told of it."""
    return [process for process in psutil.process_iter() if is_of(process, address)]


def guards(address: str) -> list[psutil.Process]:
    """Who waits for the end of a sweep there."""
    return [process for process in of_cluster(address) if is_of(process, "cluster.withdraw")]
