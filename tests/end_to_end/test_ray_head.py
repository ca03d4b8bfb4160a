"""The head of a Ray cluster is killed: nothing of ours is left anywhere, and the study goes on."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress

import pytest

from tests.end_to_end.program import Program, objective_words, wait_until
from tests.end_to_end.records import Records
from tests.end_to_end.test_ray import ON_RAY, agents, check_went_on, of_ray
from tests.execution.cluster.clusters import ray_cluster
from tests.processes import is_running

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own
    pytest.mark.slow,
    pytest.mark.timeout(900),
]
WITHOUT_A_WORD_SECONDS = 20.0
"""So long may what is ours live on: of the sweep, or of the head."""
ON_A_BUSY_MACHINE_SECONDS = 120.0
STOPPED_SECONDS = 20.0
"""Longer than a head that refuses connections is waited for."""
CLOSING_SECONDS = 20.0
"""So long does the sweep wait for its agents; Ray itself would end it after a minute."""


@pytest.mark.parametrize("with_its_machine", [True, False])
def test_when_the_head_is_killed_nothing_is_left_and_the_study_goes_on(
    program: Program, with_its_machine: bool
) -> None:
    """The sweep was started there; the other node lives on. Without its machine: Ray's processes
    alone are killed, and the sweep is not, which says so and ends."""
    records = Records(program.folder, "headless")
    words = ("study.name=headless", "study.n_trials=600", "tracking.uri=none")
    with ray_cluster(2) as cluster:
        sweep = program.start(*words, *of_ray(program, cluster), *objective_words("counts"))
        sweep.wait_until(lambda: records.n_lines() > 12, "some reports")
        ours = [c for agent in agents() for c in [agent, *agent.children(recursive=True)]]
        assert len(ours) > 2
        if with_its_machine:
            sweep.kill()
        cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        killed = time.monotonic()
        wait_until(lambda: not any(is_running(process.pid) for process in ours), "their end")
        allowed = WITHOUT_A_WORD_SECONDS + ON_A_BUSY_MACHINE_SECONDS
        assert time.monotonic() - killed < allowed
        if not with_its_machine:
            done = sweep.wait()
            assert done.code == 1
            assert "the Ray cluster is lost: its head" in done.stderr
            assert time.monotonic() - killed < allowed + CLOSING_SECONDS
            return
    with ray_cluster(1) as cluster:
        words = ("study.name=headless", "study.n_trials=3", ON_RAY[0])
        done = program.start("resume", *words, f"ray.address={cluster.address}").wait()
        assert done.code == 0, done.stderr
    check_went_on(records)


def test_a_head_that_is_stopped_for_a_while_delays_and_loses_nothing(program: Program) -> None:
    """Nobody can tell it from one that works: its kernel answers."""
    records = Records(program.folder, "delayed")
    words = ("study.name=delayed", "study.n_trials=30", "tracking.uri=none")
    with ray_cluster(2) as cluster:
        sweep = program.start(*words, *of_ray(program, cluster), *objective_words("counts"))
        sweep.wait_until(lambda: records.n_lines() > 12, "some reports")
        (head,) = cluster.head_node.all_processes["gcs_server"]
        head.process.send_signal(signal.SIGSTOP)
        with suppress(subprocess.TimeoutExpired):
            sweep.process.wait(STOPPED_SECONDS)
        head.process.send_signal(signal.SIGCONT)
        done = sweep.wait()
    assert done.code == 0, done.stderr
    assert records.optuna_states() == dict.fromkeys(range(30), "COMPLETE")
