"""Numbers that worker and parent share: each sees what the other wrote, and nothing else."""

from __future__ import annotations

from automl.execution.worker_messages import SharedNumbers
from automl.execution.worker_process import FORK_SERVER_CONTEXT
from automl.record.lease import lease_seconds


def write_what_is_seen(numbers: SharedNumbers) -> None:
    """In a process of its own, which also writes of a device that is not the worker's."""
    counters = numbers.counters
    counters.n_steps = 5
    counters.lease_has_ended = True
    numbers.write_held([2**40 + 10 * counters.n_answered + counters.n_sent, 7, 99])


def test_a_worker_and_its_parent_see_what_the_other_wrote() -> None:
    one, other = SharedNumbers(2), SharedNumbers(2)
    one.counters.n_answered += 2
    one.counters.n_sent += 1
    one.caps_bytes[:] = [3, 4]
    worker = FORK_SERVER_CONTEXT.Process(target=write_what_is_seen, args=(one,))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    assert ([*one.held_bytes], [*other.held_bytes]) == ([2**40 + 21, 7], [0, 0])
    assert ([*one.caps_bytes], [*other.caps_bytes]) == ([3, 4], [0, 0])
    assert (one.counters.n_steps, other.counters.n_steps) == (5, 0)
    assert (one.counters.n_answered, other.counters.n_answered) == (2, 0)
    assert one.counters.lease_has_ended


def test_what_no_device_is_held_of_is_written_by_nobody() -> None:
    numbers = SharedNumbers(1)
    numbers.write_held([])
    assert [*numbers.held_bytes] == [0]


def test_a_worker_is_lent_its_devices_for_a_time() -> None:
    numbers = SharedNumbers(1)
    assert not numbers.lease_is_over, "for ever"
    numbers.lease(lease_seconds() + 60)
    assert not numbers.lease_is_over
    numbers.lease(lease_seconds() - 0.1)
    assert numbers.lease_is_over
