"""What trials that were measured tell of one that was not."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import islice
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automl.admission.footprint import MemoryFootprint, MemoryStructure
from automl.trial import RequestSource
from tests.admission.families import FAMILIES, MIB, World, shapes

GIB = 1024 * MIB
N_SHAPES = 60

parts = st.floats(0, 64).map(lambda gib: gib * GIB)
structures = st.tuples(parts, parts).map(MemoryStructure)
peaks = st.integers(1, 80 * GIB)
measured = st.lists(st.tuples(structures, peaks), min_size=1, max_size=12)


def learned(trials: Sequence[tuple[MemoryStructure, int]]) -> MemoryFootprint:
    footprint = MemoryFootprint()
    for structure, peak_bytes in trials:
        footprint.add(structure, peak_bytes)
    return footprint


def bound(footprint: MemoryFootprint, *parts_bytes: float) -> int:
    found = footprint.bound_bytes(MemoryStructure(parts_bytes))
    assert found is not None
    return found


def test_before_a_trial_was_measured_nothing_is_known() -> None:
    assert MemoryFootprint().bound_bytes(MemoryStructure((GIB,))) is None


@pytest.mark.parametrize("parts", [(), (1.0, 2.0, 3.0, 4.0), (-1.0,), (float("inf"),)])
def test_a_structure_that_makes_no_sense_is_our_own_mistake(parts: tuple[float, ...]) -> None:
    with pytest.raises(AssertionError):
        MemoryStructure(parts)


def test_lanes_of_a_pack_multiply_each_part() -> None:
    surveyed = MemoryStructure((2, 3), RequestSource.SURVEYED)
    assert surveyed.times(4) == MemoryStructure((8, 12), RequestSource.SURVEYED)


@pytest.mark.parametrize(("n", "most"), [(1, 1.8), (3, 1.4), (10, 1.25), (100, 1.16)])
def test_the_more_trials_agree_the_tighter_is_the_bound(n: int, most: float) -> None:
    """All hold 0.7 times what arithmetic says."""
    footprint = learned(
        [(MemoryStructure((i * GIB,)), int(0.7 * i * GIB)) for i in range(1, n + 1)]
    )
    assert 1.02 < bound(footprint, 20 * GIB) / (0.7 * 20 * GIB) < most


def test_the_more_trials_disagree_the_wider_is_the_bound() -> None:
    alike = learned([(MemoryStructure((GIB,)), GIB)] * 10)
    apart = learned([(MemoryStructure((GIB,)), GIB // 2), (MemoryStructure((GIB,)), GIB * 2)] * 5)
    assert bound(apart, GIB) > 3 * bound(alike, GIB)


def test_a_base_and_the_factors_of_the_parts_are_found() -> None:
    """Workspaces of 600 MiB, weights as told, activations half as much again."""
    random = Random(0)
    drawn = [(random.uniform(0, 4) * GIB, random.uniform(0, 4) * GIB) for _ in range(200)]
    footprint = learned([(MemoryStructure((w, a)), int(600 * MIB + w + 1.5 * a)) for w, a in drawn])
    margin = 1.03  # exact trials still pay for the prior's spread
    assert bound(footprint, 0, 0) == pytest.approx(margin * 600 * MIB, rel=0.1)
    assert bound(footprint, 20 * GIB, 0) == pytest.approx(margin * 20.6 * GIB, rel=0.03)
    assert bound(footprint, 0, 20 * GIB) == pytest.approx(margin * 30.6 * GIB, rel=0.03)


def test_trials_of_one_size_do_not_make_all_of_it_a_base() -> None:
    """Ten times the size is ten times the memory, until trials tell otherwise."""
    random = Random(0)
    sizes = [random.uniform(0.95, 1.05) * GIB for _ in range(5)]
    footprint = learned(
        [(MemoryStructure((s,)), int(random.uniform(0.9, 1.1) * GIB)) for s in sizes]
    )
    assert bound(footprint, 10 * GIB) > 8 * GIB


def test_a_trial_that_held_next_to_nothing_does_not_spoil_what_others_told() -> None:
    trials = [(MemoryStructure((i * GIB,)), i * GIB) for i in range(1, 11)]
    footprint = learned(trials)
    before = bound(footprint, 5 * GIB)
    footprint.add(MemoryStructure((1e300,)), 1)
    footprint.remove(MemoryStructure((1e300,)), 1)
    assert bound(footprint, 5 * GIB) == before


@given(trials=measured, asked=structures, more=structures)
def test_a_larger_structure_never_gets_a_smaller_bound(
    trials: list[tuple[MemoryStructure, int]], asked: MemoryStructure, more: MemoryStructure
) -> None:
    footprint = learned(trials)
    both = [a + b for a, b in zip(asked.parts_bytes, more.parts_bytes, strict=True)]
    assert bound(footprint, *both) >= bound(footprint, *asked.parts_bytes)


@given(trials=measured, gone=measured, asked=structures, random=st.randoms())
@example(  # sums of floats lose the digits of the one that stays
    trials=[(MemoryStructure((0, 0)), 9_656_948_536)],
    gone=[
        (MemoryStructure((1.5 * GIB, 13 * GIB)), 1),
        (MemoryStructure((10544480256.0, 0)), 1),
        (MemoryStructure((27 * GIB, 0)), 1),
    ],
    asked=MemoryStructure((0, 0)),
    random=Random(0),
)
def test_only_which_trials_were_measured_counts(
    trials: list[tuple[MemoryStructure, int]],
    gone: list[tuple[MemoryStructure, int]],
    asked: MemoryStructure,
    random: Random,
) -> None:
    """Neither their order, as in a sweep that goes on, nor what was taken back."""
    before = bound(learned(trials), *asked.parts_bytes)
    shuffled = [(True, trial) for trial in trials] + [(True, trial) for trial in gone]
    random.shuffle(shuffled)
    footprint = learned([trial for _, trial in shuffled])
    for structure, peak_bytes in gone:
        footprint.remove(structure, peak_bytes)
    assert bound(footprint, *asked.parts_bytes) == before


def test_what_is_taken_back_to_the_last_leaves_nothing() -> None:
    footprint = learned([(MemoryStructure((GIB,)), GIB)])
    footprint.remove(MemoryStructure((GIB,)), GIB)
    assert footprint.bound_bytes(MemoryStructure((GIB,))) is None


def outcomes(n: int, n_parts: int) -> tuple[list[bool], list[float]]:
    """Of new shapes, 30 worlds of each family, after n trials: whether the request was enough, and
    request / peak."""
    enough, ratios = [], []
    for name, draw in FAMILIES.items():
        for seed in range(30):
            random = Random(f"{name} {seed}")
            world = World.drawn(random)
            drawn = list(islice(shapes(draw, random), N_SHAPES))
            told = [MemoryStructure(p if n_parts == 2 else (sum(p),)) for p in drawn]
            trials = [(s, world.peak_bytes(p, random)) for s, p in zip(told, drawn, strict=True)]
            footprint = learned(trials[:n])
            found = [bound(footprint, *s.parts_bytes) / peak for s, peak in trials[n:]]
            enough += [ratio >= 1 for ratio in found]
            ratios.append(statistics.median(found))
    return enough, ratios


@pytest.mark.parametrize("n_parts", [1, 2])
@pytest.mark.parametrize(("n", "median"), [(3, 1.35), (10, 1.25)])
def test_of_new_shapes_99_percent_hold_no_more_than_they_asked_for(
    n: int, median: float, n_parts: int
) -> None:
    enough, ratios = outcomes(n, n_parts)
    assert statistics.fmean(enough) >= 0.99
    assert statistics.median(ratios) <= median
