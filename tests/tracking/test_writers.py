"""Several writers: whole trials each, in their order, and what stops them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.mlflow_runs import write_all
from automl.tracking.mlflow_store import NotDeliveredError, RunGoneError

PATIENCE_SECONDS = 120.0


def test_writers_work_at_once_and_one_begins_as_they_stand() -> None:
    together, begun = threading.Barrier(4), list[int]()

    def write(number: int) -> None:
        begun.append(number)
        together.wait(PATIENCE_SECONDS)  # breaks unless four are at it

    write_all(range(8), write, 4)
    assert sorted(begun) == list(range(8))
    in_order = list[int]()
    write_all([3, 1, 2], in_order.append, 1)
    assert in_order == [3, 1, 2]


@pytest.mark.parametrize("n_writers", [1, 4])
def test_one_that_is_not_taken_hinders_no_other(n_writers: int) -> None:
    written = list[int]()

    def write(number: int) -> None:
        if number == 0:
            raise NotDeliveredError("not this one")
        written.append(number)

    with pytest.raises(NotDeliveredError, match="not this one"):
        write_all(range(6), write, n_writers)
    assert sorted(written) == [1, 2, 3, 4, 5]


def failing(begun: list[int], error: Callable[[], Exception]) -> Callable[[int], None]:
    def write(number: int) -> None:
        begun.append(number)
        raise error()

    return write


def test_after_the_second_no_more_are_begun() -> None:
    begun = list[int]()
    with pytest.raises(NotDeliveredError):
        write_all(range(100), failing(begun, NotDeliveredError), 1)
    assert begun == [0, 1]
    begun.clear()
    with pytest.raises(NotDeliveredError):
        write_all(range(100), failing(begun, NotDeliveredError), 4)
    assert len(begun) <= 5, "those that were under way"


def test_a_store_that_is_gone_is_told_before_what_it_did_not_take() -> None:
    def write(number: int) -> None:
        if number == 1:
            raise RunGoneError("purged")
        raise NotDeliveredError("busy")

    for n_writers in (1, 4):
        with pytest.raises(RunGoneError, match="purged"):
            write_all(range(2), write, n_writers)


def test_runs_that_several_writers_note_are_all_kept(tmp_path: Path) -> None:
    confirmed, n = DeliveryConfirmations.open(tmp_path / "events.log", 0.0), 2000

    def note(number: int) -> None:
        confirmed.note_run(number, f"{number:x}")

    write_all(range(n), note, 4)
    confirmed.close()
    again = DeliveryConfirmations.open(tmp_path / "events.log", 0.0)
    again.close()
    assert again.runs == {number: f"{number:x}" for number in range(n)}
