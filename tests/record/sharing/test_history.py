"""A history that breaks a promise is found, whichever promise it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.record.sharing.history import (
    Operation,
    OperationKind,
    Training,
    trained_at_once,
    violations,
)

ASKED, TAKEN_OVER, REPORTED = (
    OperationKind.ASKED,
    OperationKind.TAKEN_OVER,
    OperationKind.REPORTED,
)
TOLD, ENDED, RENEWED = OperationKind.TOLD, OperationKind.ENDED, OperationKind.RENEWED
GIVEN_BACK, LOGGED = OperationKind.GIVEN_BACK, OperationKind.LOGGED
LEASE_SECONDS = 10.0


def timed(*operations: tuple[OperationKind, int, str, int, int | None]) -> list[Operation]:
    """Return operations a second apart; each lease lasts ten."""
    return [
        Operation(
            *(kind, trial, owner, attempt, float(n), n + 0.5, step),
            metrics=("loss",) if kind is REPORTED else (),
            lease_until=n + LEASE_SECONDS if kind in (ASKED, TAKEN_OVER, RENEWED) else 0.0,
        )
        for n, (kind, trial, owner, attempt, step) in enumerate(operations)
    ]


WHOLE = timed(
    (ASKED, 0, "a", 1, None),
    (ASKED, 1, "b", 1, None),
    (REPORTED, 0, "a", 1, 0),
    (REPORTED, 1, "b", 1, 0),
    (GIVEN_BACK, 0, "a", 1, None),
    (TAKEN_OVER, 0, "b", 2, None),
    (LOGGED, 0, "b", 2, None),
    (REPORTED, 0, "b", 2, 1),
    (TOLD, 0, "b", 2, None),
    (ENDED, 0, "b", 2, None),
    (RENEWED, 1, "b", 1, None),
    (TOLD, 1, "b", 1, None),
    (ENDED, 1, "b", 1, None),
)
LAPSED = timed((ASKED, 0, "a", 1, None), (TAKEN_OVER, 0, "b", 2, None), (TOLD, 0, "b", 2, None))
LAPSED = [LAPSED[0], replace(LAPSED[1], done=10.5), replace(LAPSED[2], began=11.0, done=11.5)]
LAPSED.append(replace(LAPSED[2], kind=ENDED))


def without(n: int, history: Sequence[Operation] = WHOLE) -> list[Operation]:
    return [*history[:n], *history[n + 1 :]]


def with_more(n: int, *more: Operation, history: Sequence[Operation] = WHOLE) -> list[Operation]:
    return [*history[:n], *more, *history[n:]]


def changed(n: int, **values: object) -> list[Operation]:
    return [*WHOLE[:n], replace(WHOLE[n], **values), *WHOLE[n + 1 :]]  # type: ignore[arg-type]


def test_a_history_that_keeps_all_promises_breaks_none() -> None:
    assert violations(WHOLE, 2) == []
    assert violations(LAPSED, 1) == []
    dead = [replace(LAPSED[1], done=5.0) if n == 1 else o for n, o in enumerate(LAPSED)]
    assert violations(dead, 1, {"a": 4.0}) == []


@pytest.mark.parametrize(
    ("history", "n_trials", "what"),
    [
        (without(1), 2, "nobody asked for it"),
        (WHOLE, 3, "2 trials were asked for, not 3"),
        (WHOLE, 1, "asked for as trial number 1 of 1"),
        (with_more(2, WHOLE[1]), 2, "asked for twice"),
        (changed(1, trial=2), 2, "asked for as trial number 1"),
        (without(8), 2, "trials without an end: [0]"),
        (without(9), 2, "trials without an end: [0]"),
        (with_more(9, WHOLE[8]), 2, "told of twice"),
        (with_more(10, WHOLE[7]), 2, "it had ended"),
        (with_more(9, replace(WHOLE[7], step=2)), 2, "a report after its end"),
        (with_more(8, replace(WHOLE[7], step=0)), 2, "a step twice"),
        (with_more(8, replace(WHOLE[2], step=1)), 2, "b has it, in attempt 2"),
        (changed(7, owner="a"), 2, "b has it, in attempt 2"),
        (changed(8, attempt=1), 2, "b has it, in attempt 2"),
        (changed(5, attempt=3), 2, "attempt 3 follows attempt 1"),
        (without(4), 2, "a held it for another 4.500 s"),
        (changed(7, began=4.0), 2, "begun 1.000 s before its sweep had it"),
        (with_more(5, replace(WHOLE[2], step=3)), 2, "nobody has it, in attempt 1"),
        (with_more(9, replace(WHOLE[5], attempt=3)), 2, "it had been told of"),
    ],
)
def test_a_history_that_breaks_a_promise_is_found(
    history: Sequence[Operation], n_trials: int, what: str
) -> None:
    assert any(what in line for line in violations(history, n_trials)), violations(
        history, n_trials
    )


def test_a_sweep_that_died_after_the_take_over_was_alive_at_it() -> None:
    early = [replace(LAPSED[1], done=5.0) if n == 1 else o for n, o in enumerate(LAPSED)]
    (broken,) = violations(early, 1, {"a": 5.5})
    assert "a held it for another 5.000 s" in broken


def drawn_history(chance: random.Random, n_trials: int) -> list[Operation]:
    """Return a history of three sweeps that keeps all promises."""
    operations: list[tuple[OperationKind, int, str, int, int | None]] = []
    for trial in range(n_trials):
        owner, attempt = chance.choice("abc"), 1
        operations.append((ASKED, trial, owner, attempt, None))
        for step in range(chance.randint(1, 6)):
            if chance.random() < 0.3:
                operations.append((GIVEN_BACK, trial, owner, attempt, None))
                owner, attempt = chance.choice("abc"), attempt + 1
                operations.append((TAKEN_OVER, trial, owner, attempt, None))
            operations.append((REPORTED, trial, owner, attempt, step))
        operations += [(kind, trial, owner, attempt, None) for kind in (TOLD, ENDED)]
    return timed(*operations)


def repeat(history: Sequence[Operation], n: int) -> list[Operation]:
    return with_more(n, history[n], history=history)


def drop(history: Sequence[Operation], n: int) -> list[Operation]:
    return without(n, history)


def by_another(history: Sequence[Operation], n: int) -> list[Operation]:
    stranger = replace(history[n], owner="d")
    return [*history[:n], stranger, *history[n + 1 :]]


MATTER: dict[Callable[[Sequence[Operation], int], list[Operation]], set[OperationKind]] = {
    repeat: {ASKED, TAKEN_OVER, REPORTED, TOLD, ENDED, GIVEN_BACK},
    drop: {ASKED, TAKEN_OVER, TOLD, ENDED},
    by_another: {ASKED, TAKEN_OVER, REPORTED, TOLD, ENDED, GIVEN_BACK},
}
"""To which operations each fault may happen so that a promise is broken."""


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4), st.sampled_from([*MATTER]))
def test_one_wrong_operation_anywhere_is_found(
    chance: random.Random,
    n_trials: int,
    spoil: Callable[[Sequence[Operation], int], list[Operation]],
) -> None:
    history = drawn_history(chance, n_trials)
    assert violations(history, n_trials) == []
    places = [n for n, operation in enumerate(history) if operation.kind in MATTER[spoil]]
    assert violations(spoil(history, chance.choice(places)), n_trials)


def test_two_processes_that_train_a_trial_at_once_are_found() -> None:
    apart = [Training(0, "p", 0, 1), Training(1, "q", 0.5, 2), Training(0, "q", 1, 2)]
    assert trained_at_once(apart) == []
    assert trained_at_once([*apart, Training(0, "p", 1.5, 3)]) == ["trial 0: q and p at once"]
    within = [Training(0, "p", 0, 9), Training(0, "p", 1, 2), Training(0, "q", 3, 4)]
    assert trained_at_once(within) == ["trial 0: p and q at once"]
