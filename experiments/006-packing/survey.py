"""How well a survey knows the memory of four families of networks, and what it costs.

`PYTHONPATH=. .venv/bin/python experiments/006-packing/survey.py [--ways]`
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
import trainers
from networks_by_size import (
    N_STEPS,
    OPTIMIZERS,
    Make,
    Objective,
    conv,
    mlp,
    objective_of,
    recurrent,
    transformer,
)

import automl
from automl.measure.survey.pretence import pretend_cuda_optimizers
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyResult
from automl.measure.survey.survey_run import survey_objective
from automl.trial import TrialSpec
from tests.measure.survey.truth import ByteMasks, NoReports, really_allocated
from tests.measure.survey.ways import MLP, WAYS

MIB = 2**20
FAMILIES: dict[str, list[Make]] = {
    "MLP": [mlp(1024, 5, 256), mlp(2048, 3, 64), mlp(1536, 4, 1024), mlp(3000, 2, 333)],
    "transformer": [
        transformer(256, 6, 8, 64),
        transformer(384, 4, 4, 100),
        transformer(512, 2, 16, 48),
    ],
    "conv": [conv(64, 2, 8, 32), conv(96, 1, 16, 24), conv(64, 3, 4, 48)],
    "RNN": [recurrent(512, 2, 16, 32), recurrent(768, 1, 32, 24), recurrent(512, 3, 8, 48)],
}
FAMILIES_IN_SMALL = ("transformer", "lstm")
"""Among the ways so that the tests look at them; measured here by size."""


def spec() -> TrialSpec:
    return TrialSpec(0, {}, str(Path(tempfile.gettempdir()) / "surveyed"), study_seed=0)


def traced_bytes(objective: Objective) -> int:
    """The most that the objective has allocated at one time on the CPU, by torch's profiler."""
    with ExitStack() as stack:
        stack.enter_context(pretend_cuda_optimizers())
        stack.enter_context(ByteMasks())
        profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        )
        with profile:
            run_on_cpu(objective)
    events: Any = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    return int(max(accumulate(n_bytes for _, n_bytes in sorted(changes, key=itemgetter(0)))))


def run_on_cpu(objective: Objective) -> None:
    objective(automl.TrialContext(spec(), devices=("cpu",), seed=0, record=NoReports()))


def cpu_seconds(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def measure_families() -> None:
    survey_objective(objective_of(mlp(8, 1, 8), torch.optim.Adam), spec(), "val_loss")  # warm
    for family, makes in FAMILIES.items():
        optimizers = itertools.cycle(OPTIMIZERS)
        seen = [measure(objective_of(m, o)) for m, o in zip(makes, optimizers, strict=False)]
        weights = [s.weights_bytes / MIB for s in seen]
        steps, costs = [s.step_seconds for s in seen], [s.cost for s in seen]
        say(
            f"| {family} | {min(weights):.0f} to {max(weights):.0f} | "
            f"{spread([s.error for s in seen])} | {min(steps):.2f} to {max(steps):.2f} | "
            f"{statistics.median(costs):.2f}, at most {max(costs):.2f} |"
        )


@dataclass(frozen=True)
class Seen:
    weights_bytes: int
    error: float
    """Of what the survey says, against the trace."""
    step_seconds: float
    cost: float
    """CPU time of the survey against that of three real steps and a look at the validation."""


def measure(objective: Objective) -> Seen:
    answers = list[SurveyResult | InconclusiveSurvey]()
    seconds = cpu_seconds(lambda: answers.append(survey_objective(objective, spec(), "val_loss")))
    (survey,) = answers
    assert isinstance(survey, SurveyResult), survey
    real_seconds = cpu_seconds(lambda: run_on_cpu(objective))
    return Seen(
        survey.weights_bytes,
        survey.allocated_bytes / traced_bytes(objective) - 1,
        real_seconds / N_STEPS,
        seconds / real_seconds,
    )


def spread(errors: list[float]) -> str:
    median = statistics.median(map(abs, errors))
    return f"{median:.1%} ({min(errors):+.1%} to {max(errors):+.1%})"


def measure_ways() -> None:
    """Which of the ways of writing a loop are surveyed within their error."""
    ways = {name: way for name, way in WAYS.items() if name not in FAMILIES_IN_SMALL}
    for name in ("lightning", "transformers"):
        if importlib.util.find_spec(name) is None:
            say(f"| {name} | skipped: not installed |")
        else:
            ways[name] = getattr(trainers, name), MLP
    n_within = 0
    for name, (objective, error) in ways.items():
        answer = survey_objective(objective, spec(), "val_loss")
        if isinstance(answer, InconclusiveSurvey):
            say(f"| {name} | unknown: {answer.reason} |")
            continue
        really = really_allocated(objective, Path(spec().checkpoint_dir)).peak_allocated_bytes
        off = answer.allocated_bytes / really - 1
        n_within += abs(off) <= error
        say(f"| {name} | {off:+.1%} of {error:.0%} |")
    say(f"{n_within} of {len(ways)} within their error")


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  what an experiment is for


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", action="store_true", help="the ways of writing a loop instead")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    (measure_ways if parser.parse_args().ways else measure_families)()
