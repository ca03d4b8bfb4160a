"""What torch reserves of a GPU, against the model of its allocator (`automl/measure/survey/`).

Two errors, each against torch's own `max_memory_reserved`. *Model*: the same allocations, replayed
through the model; what is left is the model's. *Known before*: what the product knew before the
trial ran, by a survey of a user's function or by arithmetic on the built-in network; libraries'
workspaces are in it, too. See gpu.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import cast

from gpu_machine import MIB, Bench, opened, parser, table, write
from gpu_objectives import FAMILIES, shapes
from gpu_trace import NOWHERE, Question, Traced
from gpu_workers import preload_torch, setup_of, spec_of

from automl.config import DataConfig
from automl.data.load import load_dataset
from automl.execution.child_calls import call_in_child
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyResult
from automl.objectives.training_plan import SessionSetup
from automl.running.trials.surveyor import survey_trial
from automl.trial import Params, ProcessEntry
from tests.models.conftest import make_plan

OURS = "built-in MLP"
HEAD = ("shapes", "n", "reserved, MiB", "model", "known before", "not known")


@dataclass(frozen=True)
class Shape:
    kind: str
    setup: SessionSetup
    params: Params

    def known_bytes(self) -> int | None:
        """Before it runs; None: a survey could not tell."""
        if self.kind == OURS:
            assert self.setup.dataset is not None
            return self.setup.plan.request(self.params, self.setup.dataset).memory_bytes
        found = survey_trial(self.setup, spec_of(0, self.params, NOWHERE))
        if isinstance(found, InconclusiveSurvey):
            write(f"{self.params}: {found.reason}")
        return found.reserved_bytes if isinstance(found, SurveyResult) else None


def drawn(n: int, *, small: bool) -> Iterator[Shape]:
    """One of each kind, then the next of each."""
    users = setup_of("train")
    of_families = {name: shapes(name, Random(name), small=small) for name in FAMILIES}
    ours, random = _built_in(small=small), Random(OURS)
    for _ in range(n):
        yield Shape(OURS, ours, _ours(random, small=small))
        for name, of_family in of_families.items():
            yield from (Shape(name, users, params) for params in islice(of_family, 1))


def _built_in(*, small: bool) -> SessionSetup:
    plan = replace(make_plan(), data=DataConfig(n_train=512 if small else 65_536))
    return SessionSetup(plan, load_dataset(plan.data))


def _ours(random: Random, *, small: bool) -> Params:
    return {
        "depth": random.randint(1, 8),
        "width": random.choice([32, 64] if small else [64, 256, 1024, 4096]),
        "batch_size": random.choice([64, 128] if small else [256, 4096, 32_768]),
        "optimizer": random.choice(["sgd", "adam"]),
        "lr": 0.01,
    }


@dataclass(frozen=True)
class Row:
    traced: Traced
    known: int | None

    @property
    def truth(self) -> int:
        """What torch reserved; on the CPU, for dry runs, the model."""
        return self.traced.reserved or self.traced.model_reserved


def measure(bench: Bench, shape: Shape) -> Row:
    uuid = None if bench.kind == "cpu" else bench.read().address.uuid
    question = Question(shape.setup, shape.params, uuid)
    traced = cast(Traced, call_in_child(ProcessEntry("gpu_trace:trace", question)))
    return Row(traced, shape.known_bytes())


def cells(kind: str, rows: list[Row]) -> tuple[object, ...]:
    sizes = [row.truth / MIB for row in rows]
    model = [row.traced.model_reserved / row.truth - 1 for row in rows if row.traced.reserved]
    known = [row.known / row.truth - 1 for row in rows if row.known is not None]
    n_unknown = sum(row.known is None for row in rows)
    span = f"{min(sizes):.0f} to {max(sizes):.0f}"
    return kind, len(rows), span, _spread(model), _spread(known), n_unknown


def _spread(errors: list[float]) -> str | None:
    if not errors:
        return None
    median = statistics.median(map(abs, errors))
    return f"{median:.1%} ({min(errors):+.1%} to {max(errors):+.1%})"


def main() -> None:
    arguments = parser(__doc__, "cpu")
    arguments.add_argument("--shapes", type=int, default=8, help="of each kind")
    args = arguments.parse_args()
    until = time.monotonic() + args.budget_seconds
    found: dict[str, list[Row]] = {}
    with opened(args.device) as bench:
        preload_torch()
        for shape in drawn(args.shapes, small=args.device == "cpu"):
            if time.monotonic() > until:
                write("The time is over: the rest is left out.")
                break
            found.setdefault(shape.kind, []).append(measure(bench, shape))
    table(HEAD, [cells(kind, rows) for kind, rows in found.items()])
    write("\nMedian of |error|, and from the lowest to the highest error.")


if __name__ == "__main__":
    main()
