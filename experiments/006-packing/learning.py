"""How soon does a learned request suffice, and what does it cost? See learning.md.

Of each family many worlds are drawn (a hidden factor, noise), in each 60 shapes; a footprint learns
the first few and asks for the others. `--measured FILE` takes real trials instead: a JSON line each
with `family`, `parts_bytes` (a list) and `peak_bytes`; then a world is an order of them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import TypeAlias

from automl.admission.footprint import MemoryFootprint, MemoryStructure, student_t_quantile_99
from automl.admission.requests import RequestMaker
from automl.trial import DeviceKind, MemoryPeakMeasured, Params, RequestSource, ResourceRequest
from tests.admission.families import FAMILIES, MIB, Parts, World, shapes

N_SHAPES = 60
AFTER = (1, 2, 3, 5, 10, 30)
N_MEASURED = (3, 1_000, 10_000)
BASES_MIB = (60, 500)
NOISES = (0.02, 0.05, 0.1)

Trial: TypeAlias = tuple[MemoryStructure, int]
"""Its structure and its peak in bytes."""
Rule: TypeAlias = Callable[[Sequence[Trial], Sequence[MemoryStructure]], Sequence[float]]
"""(trials that were measured, new structures) → what these ask for."""
Worlds: TypeAlias = Mapping[str, Sequence[Sequence[Trial]]]
"""Of each family."""


def footprint(measured: Sequence[Trial], new: Sequence[MemoryStructure]) -> Sequence[float]:
    """What the product does."""
    learned = MemoryFootprint()
    for structure, peak_bytes in measured:
        learned.add(structure, peak_bytes)
    return [learned.bound_bytes(structure) or 0 for structure in new]


def factor_alone(measured: Sequence[Trial], new: Sequence[MemoryStructure]) -> Sequence[float]:
    """One factor for the whole structure, no base; the same prior and quantile."""
    logs = [math.log(peak / structure.total_bytes) for structure, peak in measured]
    middle, n = statistics.fmean(logs), len(logs)
    square = 4 * 0.08**2 + sum((x - middle) ** 2 for x in logs)
    width = student_t_quantile_99(n + 3) * math.sqrt(square / (n + 3) * (1 + 1 / n))
    return [math.exp(middle + width) * structure.total_bytes for structure in new]


def worst_seen(measured: Sequence[Trial], new: Sequence[MemoryStructure]) -> Sequence[float]:
    """The largest factor so far, and 5 %."""
    worst = max(peak / structure.total_bytes for structure, peak in measured)
    return [1.05 * worst * structure.total_bytes for structure in new]


def told(parts: Parts, n_parts: int) -> MemoryStructure:
    return MemoryStructure(parts if n_parts == 2 else (sum(parts),))


def worlds(
    n: int, *, n_parts: int = 1, base_mib: int = 0, noise: float | None = None, seed: str = ""
) -> Worlds:
    """Drawn; `noise`: the same in all."""
    found: dict[str, list[Sequence[Trial]]] = defaultdict(list)
    for name, draw in FAMILIES.items():
        for i in range(n):
            random = Random(f"{seed}{name}{i}")
            world = World.drawn(random, base_mib * MIB)
            world = world if noise is None else replace(world, noise=noise)
            drawn = islice(shapes(draw, random), N_SHAPES)
            found[name].append([(told(p, n_parts), world.peak_bytes(p, random)) for p in drawn])
    return found


def real_worlds(path: Path, n: int) -> Worlds:
    """Trials that were measured, in so many orders."""
    trials: dict[str, list[Trial]] = defaultdict(list)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        trials[row["family"]].append(
            (MemoryStructure(tuple(row["parts_bytes"])), row["peak_bytes"])
        )
    return {
        name: [Random(i).sample(of_family, len(of_family)) for i in range(n)]
        for name, of_family in trials.items()
    }


def ratios(world: Sequence[Trial], n: int, rule: Rule) -> list[float]:
    """Request / peak of the trials after the first n."""
    new = world[n:]
    asked = rule(world[:n], [structure for structure, _ in new])
    return [request / peak for request, (_, peak) in zip(asked, new, strict=True)]


def cell(found: Sequence[Sequence[float]]) -> str:
    """`99.3 %, 1.33`: requests that were enough, and the median over worlds of request / peak; a
    dash where there were too few trials."""
    if not found:
        return "–"
    enough = statistics.fmean(ratio >= 1 for of_world in found for ratio in of_world)
    return f"{100 * enough:.1f} %, {statistics.median(map(statistics.median, found)):.2f}"


def row(name: str, of_families: Iterable[Sequence[Sequence[Trial]]], rule: Rule) -> str:
    everything = [world for of_family in of_families for world in of_family]
    cells = [cell([ratios(w, n, rule) for w in everything if len(w) > n]) for n in AFTER]
    return f"| {name} | {' | '.join(cells)} |\n"


def table(title: str, rows: Iterable[str]) -> None:
    names = " | ".join(f"after {n}" for n in AFTER)
    sys.stdout.write(f"\n| {title} | {names} |\n|---|{'---|' * len(AFTER)}\n")
    sys.stdout.writelines(rows)


def microseconds(action: Callable[[int], object], n_times: int = 500) -> float:
    """Median of its CPU time."""
    spent = []
    for i in range(n_times):
        begun = time.process_time_ns()
        action(i)
        spent.append((time.process_time_ns() - begun) / 1000)
    return statistics.median(spent)


def costs(n_measured: int) -> str:
    """Of one request at the door, by itself and just after one more trial was measured."""

    def arithmetic(params: Params) -> ResourceRequest:
        return ResourceRequest(int(str(params["n"])) * MIB, RequestSource.ESTIMATED)

    def learn(i: int) -> None:
        requests.learn({"n": 100 + i}, MemoryPeakMeasured(i, 0.0, (90 + i) * MIB), DeviceKind.GPU)

    def ask(i: int) -> ResourceRequest:
        return requests.request_for({"n": 99}, where={DeviceKind.GPU})

    def both(i: int) -> ResourceRequest:
        learn(n_measured + i)
        return ask(i)

    requests = RequestMaker(arithmetic, None)
    for i in range(n_measured):
        learn(i)
    assert ask(0).source is RequestSource.LEARNED
    return f"| {n_measured:,} | {microseconds(ask):.0f} | {microseconds(both):.0f} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=200, help="of each family")
    parser.add_argument("--measured", type=Path, help="real trials, JSON lines")
    arguments = parser.parse_args()
    if arguments.measured is not None:
        real = real_worlds(arguments.measured, arguments.worlds)
        table("measured", (row(name, [worlds], footprint) for name, worlds in real.items()))
        return
    for n_parts, title in ((1, "one part"), (2, "weights, activations")):
        drawn = worlds(arguments.worlds, n_parts=n_parts)
        table(title, [row(name, [drawn[name]], footprint) for name in drawn])
        sys.stdout.write(row("all", drawn.values(), footprint))
    n = arguments.worlds
    one = worlds(n).values()
    rules = {"footprint": footprint, "factor alone": factor_alone, "worst seen": worst_seen}
    table("rule", (row(name, one, rule) for name, rule in rules.items()))
    noisy = {noise: worlds(n, noise=noise).values() for noise in NOISES}
    table("noise", (row(f"{noise:.0%}", noisy[noise], footprint) for noise in noisy))
    for rule in (footprint, factor_alone):
        based = {mib: worlds(n, base_mib=mib).values() for mib in BASES_MIB}
        title = f"a base that nobody told, {rule.__name__}"
        table(title, (row(f"{mib} MiB", of_base, rule) for mib, of_base in based.items()))
    sys.stdout.write("\n| measured | request, µs | trial told, and request, µs |\n|---|---|---|\n")
    sys.stdout.writelines(map(costs, N_MEASURED))


if __name__ == "__main__":
    main()
