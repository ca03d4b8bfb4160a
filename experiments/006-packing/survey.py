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
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
import trainers
from torch import nn

import automl
from automl.training.survey.found import Survey, Unsurveyed
from automl.training.survey.pretence import optimizers_as_on_cuda
from automl.training.survey.run import survey_objective
from automl.trial import TrialSpec
from tests.training.survey.truth import ByteMasks, NoReports, really_allocated
from tests.training.survey.ways import MLP, WAYS, Block

MIB = 2**20
N_STEPS = 3
Objective = Callable[[automl.TrialContext], None]
Make = Callable[[], tuple[nn.Module, Callable[[], tuple[torch.Tensor, torch.Tensor]]]]


class Recurrent(nn.Module):
    def __init__(self, width: int, depth: int, n_tokens: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(n_tokens, width), nn.Linear(width, n_tokens)
        self.rnn = nn.LSTM(width, width, depth, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.rnn(self.embed(tokens))[0])
        return out


def mlp(width: int, depth: int, batch: int) -> Make:
    def make() -> Any:
        sizes = [784, *[width] * depth]
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), nn.ReLU(), nn.Dropout(0.1)]
        net = nn.Sequential(*layers, nn.Linear(width, 10))
        return net, lambda: (torch.randn(batch, 784), torch.randint(10, (batch,)))

    return make


def transformer(width: int, depth: int, batch: int, length: int) -> Make:
    def make() -> Any:
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        net = nn.Sequential(nn.Embedding(1000, width), body, nn.Linear(width, 1000))
        return net, lambda: tuple(torch.randint(1000, (batch, length)) for _ in range(2))

    return make


def conv(width: int, depth: int, batch: int, size: int) -> Make:
    def make() -> Any:
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for factor in (1, 2, 4):
            layers += [Block(width * factor) for _ in range(depth)]
            layers += [nn.Conv2d(width * factor, 2 * width * factor, 3, stride=2, padding=1)]
        net = nn.Sequential(
            *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10)
        )
        return net, lambda: (torch.randn(batch, 3, size, size), torch.randint(10, (batch,)))

    return make


def recurrent(width: int, depth: int, batch: int, length: int) -> Make:
    def make() -> Any:
        net = Recurrent(width, depth, 1000)
        return net, lambda: tuple(torch.randint(1000, (batch, length)) for _ in range(2))

    return make


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
OPTIMIZERS: list[Any] = [
    torch.optim.Adam,
    lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    torch.optim.AdamW,
]


def objective_of(make: Make, optimizer_of: Any) -> Objective:
    def train(trial: automl.TrialContext) -> None:
        net, batch = make()
        net.to(trial.device)
        optimizer = optimizer_of(net.parameters())
        for _ in range(N_STEPS):
            x, y = (t.to(trial.device) for t in batch())
            optimizer.zero_grad()
            loss_of(net, x, y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            x, y = (t.to(trial.device) for t in batch())
            trial.report(0, {"val_loss": loss_of(net, x, y).item()})

    return train


def loss_of(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = net(x)
    return F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1))


def spec() -> TrialSpec:
    return TrialSpec(0, {}, str(Path(tempfile.gettempdir()) / "surveyed"), study_seed=0)


def traced_bytes(objective: Objective) -> int:
    """The most that the objective has allocated at one time on the CPU, by torch's profiler."""
    with ExitStack() as stack:
        stack.enter_context(optimizers_as_on_cuda())
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
    answers = list[Survey | Unsurveyed]()
    seconds = cpu_seconds(lambda: answers.append(survey_objective(objective, spec(), "val_loss")))
    (survey,) = answers
    assert isinstance(survey, Survey), survey
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
        if isinstance(answer, Unsurveyed):
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
