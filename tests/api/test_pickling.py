"""A function for worker processes: bytes, and what is in their way."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import pytest

from automl.api.pickled_function import pickle_function, pickle_size_notes
from automl.errors import ConfigError
from automl.objectives.function_call import CalledFunction


def holding(**held: object) -> Callable[..., object]:
    lock, data, few = (held.get(name) for name in ("lock", "data", "few"))
    return lambda lr: (lr, lock, data, few)


def test_what_cannot_be_pickled_is_named_with_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        pickle_function(holding(lock=threading.Lock(), data=3))
    words = str(caught.value)
    assert words.startswith("lambda cannot be sent to worker processes: closure lock (lock): ")
    assert "closure data" not in words
    assert 'Make that inside the function, or train in this process with overrides=["exec' in words


def test_what_makes_a_function_large_is_named_the_largest_first() -> None:
    function = holding(data=bytes(70 * 1024**2), lock=bytes(2 * 1024**2), few=b"x")
    (note,) = pickle_size_notes(function, len(pickle_function(function)))
    assert note.startswith(
        "lambda takes 72.0 MiB along into each worker process (closure data 70.0 MiB, closure lock "
        "2.0 MiB): read data inside"
    )
    assert pickle_size_notes(function, 64 * 1024**2) == ()


def test_the_function_is_the_callers_own_here_and_made_anew_elsewhere() -> None:
    seen: list[float] = []
    function = holding(data=seen)
    called = CalledFunction(function, pickle_function(function), changed=True, notes=("a",))
    assert called.load("f") is function
    there = pickle.loads(pickle.dumps(called))
    made = there.load("f")
    assert there.load("f") is made
    assert made(0.1)[2] == []
    assert made(0.1)[2] is not seen


def test_what_cannot_be_imported_there_is_said() -> None:
    called = CalledFunction(len, b"cno_such_module\nname\n.")
    there = pickle.loads(pickle.dumps(called))
    with pytest.raises(ConfigError, match=r"train cannot be had in a worker.*'no_such_module'"):
        there.load("train")
