"""Any order of commands on one study: each answer is what the reference model says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.orders.conftest import N_ORDERS, ORDERS_PER_TEST, SEED
from tests.orders.study_machine import machine_with

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ONE_TEST = settings(
    max_examples=ORDERS_PER_TEST,
    stateful_step_count=12,
    phases=[Phase.generate],  # to make an order shorter takes minutes: a case of its own is written
    derandomize=False,
    database=None,
    deadline=None,
    print_blob=False,
    verbosity=Verbosity.debug if os.environ.get("ORDERS_TRACE") else Verbosity.normal,
    suppress_health_check=[*HealthCheck],
)
N_TESTS = -(-N_ORDERS // ORDERS_PER_TEST)


@pytest.mark.parametrize("number", range(SEED * N_TESTS, (SEED + 1) * N_TESTS))
def test_every_answer_is_what_the_commands_before_it_say(empty_database: Path, number: int) -> None:
    machine = machine_with(empty_database)
    run_state_machine_as_test(seed(number)(machine), settings=ONE_TEST)
