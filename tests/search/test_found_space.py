"""What trials asked for, folded into a space: what is known of it, and what must be asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.search.domains import ChoiceDomain, Domain, RangeDomain
from automl.search.param_suggestions import N_ALIKE_TRIALS, SuggestedSpace
from automl.search.search_space import parse_space

LR = RangeDomain(1e-5, 1e-1, log=True)
KIND = ChoiceDomain(("sgd", "adam"))
Asked = Mapping[str, Domain]


def fold(*trials: Asked, written: Mapping[str, object] | None = None) -> SuggestedSpace:
    found = SuggestedSpace(parse_space(written or {}))
    for asked in trials:
        found.take(asked, trained=True)
    return found


def known(found: SuggestedSpace) -> list[str]:
    return list(found.known().names)


@pytest.mark.parametrize(
    ("trials", "names"),
    [
        ([{"lr": LR}] * 2, []),
        ([{"lr": LR}] * 3, ["lr"]),
        ([{"lr": LR}, *[{"lr": LR, "kind": KIND}] * 2], []),
        ([{"lr": LR}, *[{"lr": LR, "kind": KIND}] * 3], ["lr"]),  # the first lacked it
        ([{"lr": LR, "b": RangeDomain(0, n)} for n in (1, 2, 3, 4)], ["lr"]),
        ([{"lr": LR, "b": RangeDomain(0, 1)}, *[{"lr": LR}] * 3], ["lr"]),
        ([*[{"lr": LR, "b": RangeDomain(0, 1)}] * 3, {"lr": LR}], ["lr"]),
        ([*[{"lr": LR, "b": RangeDomain(0, 1)}] * 3, {"lr": LR, "b": RangeDomain(0, 2)}], ["lr"]),
        ([{}] * 3, []),
    ],
    ids=[
        "two alike are too few",
        "three alike",
        "two since one was new",
        "one that the first trial lacked",
        "a range that varies",
        "one that others lack",
        "one that the fourth lacks",
        "a range that varies later",
        "nothing is asked for",
    ],
)
def test_known_is_what_all_trials_have_over_one_range(
    trials: Sequence[Asked], names: Sequence[str]
) -> None:
    assert known(fold(*trials)) == names


def test_what_is_found_later_keeps_nothing_waiting() -> None:
    found = fold(*[{"lr": LR}] * N_ALIKE_TRIALS)
    assert found.is_stable
    found.take({"lr": LR, "kind": KIND}, trained=True)
    assert found.is_stable
    assert known(found) == ["lr"]


def test_a_trial_that_did_not_train_tells_only_what_it_asked_for() -> None:
    found = fold({"lr": LR, "kind": KIND}, {"lr": LR, "kind": KIND})
    for _ in range(5):
        found.take({"lr": LR}, trained=False)
    assert not found.is_stable
    found.take({"lr": LR, "kind": KIND}, trained=True)
    assert known(found) == ["lr", "kind"]


def test_what_was_written_stays_as_it_was_written() -> None:
    written = {"lr": {"low": 0.1, "high": 0.2}, "width": 3}
    both: Asked = {"lr": LR, "kind": KIND}
    found = fold(both, both, both, written=written)
    assert known(found) == ["lr", "width", "kind"]
    assert found.known()["lr"].domain == RangeDomain(0.1, 0.2)
    assert list(found.lines()) == ['kind: {choices: ["sgd", "adam"]}']


def test_the_yaml_says_what_the_values_decide() -> None:
    trials: list[Asked] = [
        {
            "n": RangeDomain(1, 3),
            "b": RangeDomain(0, n),
            "odd name": RangeDomain(0.0, 1.0, step=0.25),
        }
        for n in (2, 1, 3)
    ]
    assert list(
        fold(*trials, {"n": RangeDomain(1, 3), "b": RangeDomain(0, 1), "lr": LR}).lines()
    ) == [
        "n: 1..3",
        "b: 0..3  # its range depends on the other values",
        '"odd name": 0.0..1.0/0.25  # in 3 of 4 trials',
        "lr: log:1e-05..0.1  # in 1 of 4 trials",
    ]


DOMAINS = st.sampled_from([RangeDomain(0, 1), RangeDomain(0, 2), RangeDomain(0, 3, step=1)])
TRIALS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abc"), DOMAINS), st.booleans()), max_size=8
)


@given(TRIALS)
def test_what_is_known_fits_every_trial(trials: Sequence[tuple[Asked, bool]]) -> None:
    """A param that is drawn ahead could have been used as it is by all trials so far."""
    found = SuggestedSpace(parse_space({}))
    for asked, trained in trials:
        found.take(asked, trained=trained)
    for param in found.known().params:
        assert all(asked[param.name] == param.domain for asked, _ in trials if param.name in asked)
        assert all(param.name in asked for asked, trained in trials if trained)
    assert found.is_stable or not found.known().params
