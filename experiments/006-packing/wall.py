"""How often TPE proposes what fits on no device, by what it is told of that: `python wall.py`.

Nothing is trained. A trial's memory is arithmetic on its params, and half the space's volume wants
more than there is; its loss is a bowl, least within the wall, at it, or far beyond, where larger is
better without end. The study, its sampler and its storage are the product's.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from automl.admission.refusals import excess_after_out_of_memory
from automl.config import StudyConfig
from automl.search.domains import RangeDomain
from automl.search.pruners.none import NoPruner
from automl.search.samplers.tpe import TPE
from automl.search.search_space import parse_space
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FailedOutcome, FinishedOutcome, Params, TooLargeOutcome, TrialOutcome

N_STARTUP = 10
N_TRIALS = 50
"""After those at random."""
MIB = 2**20
SPACE = parse_space(
    {
        "depth": {"low": 1, "high": 8},
        "width": {"low": 64, "high": 4096, "log": True},
        "batch_size": {"low": 16, "high": 1024, "log": True},
        "lr": {"low": 1e-5, "high": 1e-1, "log": True},
    }
)
BEST: Mapping[str, Mapping[str, float]] = {
    "within": {"depth": 0.4, "width": 0.4, "batch_size": 0.4, "lr": 0.5},
    "at the wall": {"depth": 0.6, "width": 0.6, "batch_size": 0.5, "lr": 0.5},
    "beyond": {"depth": 1.0, "width": 1.0, "batch_size": 0.5, "lr": 0.5},
}
"""Where in each range, from 0 to 1, the loss is least."""
WAYS = ("nothing", "bare 1.0", "ran out", "excess")


class Optunas(TPE):
    """Without the wall: what it proposes is Optuna's."""

    def choose_draw(self, draw: Callable[[], dict[str, Any]], *_: object) -> dict[str, Any]:
        return draw()


@dataclass(frozen=True)
class Run:
    """One study."""

    n_beyond: int
    """Trials beyond the wall after those at random."""
    best: float
    """The least loss of all."""


def memory_bytes(params: Params) -> int:
    """Of an MLP trained by Adam: four times its weights, and its activations."""
    depth, width, batch = (int(params[name] or 0) for name in ("depth", "width", "batch_size"))
    return 64 * MIB + 4 * (4 * depth * width * width + 3 * depth * width * batch)


def room_bytes() -> int:
    """What half of the space's volume wants more than."""
    draw = random.Random(0)

    def one() -> Params:
        return {
            "depth": draw.randint(1, 8),
            "width": round(64 * 64 ** draw.random()),
            "batch_size": round(16 * 64 ** draw.random()),
        }

    return int(statistics.median(memory_bytes(one()) for _ in range(100_001)))


def loss(params: Params, best: Mapping[str, float]) -> float:
    ranges = {p.name: p.domain for p in SPACE.params if isinstance(p.domain, RangeDomain)}
    at = {name: span.share(float(params[name] or 0)) for name, span in ranges.items()}
    return sum((at[name] - least) ** 2 for name, least in best.items())


def ended(number: int, params: Params, way: str, where: str, room: int) -> TrialOutcome:
    """What becomes of a trial, and what the study is told of it."""
    needed = memory_bytes(params)
    if needed <= room:
        return FinishedOutcome(number, 0.0, loss(params, BEST[where]))
    if way == "nothing":
        return FailedOutcome(number, 0.0, "does not fit")
    told = excess_after_out_of_memory(0, None if way == "ran out" else needed, room)
    return TooLargeOutcome(number, 0.0, "does not fit", *((1.0,) if way == "bare 1.0" else told))


def run(way: str, where: str, seed: int, room: int) -> Run:
    kind = TPE if way in ("ran out", "excess") else Optunas
    n_beyond, losses = 0, []
    with tempfile.TemporaryDirectory() as folder:
        study = Study.open(
            StudyConfig(name="wall", seed=seed),
            StudyRules(SPACE, kind(n_startup_trials=N_STARTUP), NoPruner(), StudyIdentity({}, {})),
            Path(folder),
        )
        for number in range(N_STARTUP + N_TRIALS):
            asked = study.ask()
            assert asked is not None, "a space of numbers is never exhausted"
            outcome = ended(number, asked.params, way, where, room)
            study.tell(number, outcome)
            if isinstance(outcome, FinishedOutcome):
                losses.append(outcome.value)
            elif number >= N_STARTUP:
                n_beyond += 1
        study.close()
    return Run(n_beyond, min(losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    n_seeds, room = parser.parse_args().seeds, room_bytes()
    cells = list(product(BEST, WAYS))
    with ProcessPoolExecutor() as pool:
        found = {
            (where, way): [pool.submit(run, way, where, seed, room) for seed in range(n_seeds)]
            for where, way in cells
        }
    sys.stdout.write("| best point | told | beyond: median (range) | best loss: median |\n")
    for where, way in cells:
        runs = [future.result() for future in found[where, way]]
        beyond = sorted(r.n_beyond for r in runs)
        best = statistics.median(r.best for r in runs)
        spread = f"{statistics.median(beyond):g} ({beyond[0]} to {beyond[-1]})"
        sys.stdout.write(f"| {where} | {way} | {spread} | {best:.4f} |\n")


if __name__ == "__main__":
    main()
