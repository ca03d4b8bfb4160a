"""Which Ray cluster a sweep trains on: that of its machine, or one of its own."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.end_to_end.program import Program, objective_words, wait_until
from tests.end_to_end.records import Records
from tests.end_to_end.trouble import trouble
from tests.execution.cluster.clusters import short_folder, started_head
from tests.processes import is_running

pytestmark = pytest.mark.slow
WORDS = ("execution=ray", "devices.only=cpu", "pruner=none", "tracking.uri=none")
RAYS_AGENTS = ("DashboardAgent", "RuntimeEnvAgent")
OTHERS_RUN = "Found multiple active Ray instances"
"""Ray's own words, where tests beside this one have a cluster each; it takes that of `HERE`."""
HERE = "RAY_TMPDIR"
"""Where Ray looks which cluster runs here; else it may find one of another test.

A cluster of its own takes nobody without the token in ~/.ray, which Ray makes with the first one
and asks for in every cluster that is started afterwards: so these tests have a home of their own.
"""


def n_agents(session: Path) -> int:
    """How many processes of ours ever ran in the cluster whose files these are."""
    return sum("AgentActor" in log.read_text() for log in session.glob("logs/worker-*.out"))


def test_auto_joins_the_cluster_that_runs_and_local_has_one_of_its_own(program: Program) -> None:
    program.environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # it is on loopback
    words = (*WORDS, "study.n_trials=2", *objective_words("counts"))
    with short_folder() as folder:
        own = {HERE: str(folder), "HOME": str(folder)}
        program.environment |= own
        with started_head(folder, environment=own):
            session = (folder / "ray" / "session_latest").resolve()
            for n, address in enumerate(("auto", "local")):
                assert n_agents(session) == n
                there = (f"study.name=by-{address}", f"ray.address={address}")
                done = program.start(*there, *words).wait()
                lines = [line for line in done.stderr.splitlines() if OTHERS_RUN not in line]
                assert (done.code, lines) == (0, [])
                assert f"by-{address}: 2 finished" in done.stdout
            assert n_agents(session) == 1, "the second one had its own"


@pytest.mark.parametrize("ends", ["by itself", "kill -9"])
def test_a_cluster_of_its_own_is_gone_with_the_sweep(program: Program, ends: str) -> None:
    records = Records(program.folder, "own")
    n_trials = 4 if ends == "by itself" else 400
    with short_folder() as folder:
        program.environment |= {HERE: str(folder), "HOME": str(folder)}
        sweep = program.start(
            *("study.name=own", f"study.n_trials={n_trials}", "ray.address=local"),
            *(*WORDS, *objective_words("counts")),
        )
        sweep.wait_until(lambda: records.n_lines() > 3, "some reports")
        started = psutil.Process(sweep.process.pid).children(recursive=True)
        names = {process: " ".join(process.cmdline()).strip() for process in started}
        assert any("raylet/raylet" in name for name in names.values())
        assert any("AgentActor" in name for name in names.values())
        # Ray's own agents look for their raylet once a minute.
        ours = [process for process in started if not names[process].endswith(RAYS_AGENTS)]
        if ends == "kill -9":
            sweep.kill()
        else:
            done = sweep.wait()
            assert (done.code, trouble(done)) == (0, "")
        wait_until(
            lambda: not any(is_running(process.pid) for process in ours),
            "the end of all its processes",
        )
