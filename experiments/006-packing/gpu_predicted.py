"""What was known of a trial before it ran against what it held: shapes of four families.

Each is surveyed as the product does, then trained in a real worker, whose peak is what torch
reserved. `--json FILE` takes a line for each, as `learning.py --measured FILE` reads them; its
table, which this prints, too, says how soon requests learned from such peaks suffice. See
gpu.md.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

import learning
from gpu_machine import MIB, Bench, opened, parser, table, write
from gpu_objectives import FAMILIES, shapes
from gpu_workers import carry, preload_torch, setup_of, spec_of, workers

from automl.execution.workers_executor import WorkersExecutor
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyResult
from automl.running.trials.surveyor import survey_trial
from automl.trial import FinishedOutcome, Params

HEAD = ("family", "shapes", "held, MiB", "held / surveyed", "not surveyed", "ran out or failed")
N_ORDERS = 50
"""In which the shapes are thought to have come, for the table of learning."""


@dataclass(frozen=True)
class Trial:
    """One shape."""

    family: str
    params: Params
    found: SurveyResult | InconclusiveSurvey
    peak_bytes: int | None
    """None: it did not run to its end."""

    @property
    def line(self) -> str | None:
        """For `learning.py`; None: it has nothing to learn from."""
        if self.peak_bytes is None or isinstance(self.found, InconclusiveSurvey):
            return None
        weights, reserved = self.found.weights_bytes, self.found.reserved_bytes
        parts = [weights, reserved - weights]
        row = {"family": self.family, "parts_bytes": parts, "peak_bytes": self.peak_bytes}
        return json.dumps({**row, "params": dict(self.params)})


def drawn(n: int, *, small: bool) -> Iterator[Params]:
    """One of each family, then the next of each: so that whatever is cut short has all."""
    families = [shapes(name, Random(name), small=small) for name in FAMILIES]
    for _ in range(n):
        yield from map(next, families)


def measured(bench: Bench, params: Sequence[Params], until: float, folder: Path) -> Iterator[Trial]:
    """Surveys are made beside the trials, a few at once; in their order."""
    setup = setup_of("train")
    specs = [spec_of(number, p, folder) for number, p in enumerate(params)]
    with ThreadPoolExecutor(2) as pool, workers("train", folder) as executor:
        surveys = [pool.submit(survey_trial, setup, spec) for spec in specs]
        for spec, surveyed in zip(specs, surveys, strict=True):
            if time.monotonic() > until:
                break
            peak = held_bytes(bench, executor, spec.params, spec.number, folder)
            yield Trial(str(spec.params["family"]), spec.params, surveyed.result(), peak)
        pool.shutdown(cancel_futures=True)


def held_bytes(
    bench: Bench, executor: WorkersExecutor, params: Params, number: int, folder: Path
) -> int | None:
    outcome, peak = carry(executor, spec_of(number, params, folder), bench.placement)
    if peak is None or not peak.peak_bytes or not isinstance(outcome, FinishedOutcome):
        write(f"{dict(params)}: {outcome}")
        return None
    return peak.peak_bytes


def cells(family: str, trials: Sequence[Trial]) -> tuple[object, ...]:
    held = [t.peak_bytes / MIB for t in trials if t.peak_bytes is not None]
    factors = [
        t.peak_bytes / t.found.reserved_bytes
        for t in trials
        if t.peak_bytes is not None and isinstance(t.found, SurveyResult)
    ]
    n_unknown = sum(isinstance(t.found, InconclusiveSurvey) for t in trials)
    return (
        family,
        len(trials),
        _span(held, 0),
        _span(factors, 2),
        n_unknown,
        len(trials) - len(held),
    )


def _span(numbers: Sequence[float], digits: int) -> str | None:
    if not numbers:
        return None
    low, middle, high = min(numbers), statistics.median(numbers), max(numbers)
    return f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def as_lines(trials: Iterable[Trial]) -> str:
    return "".join(f"{t.line}\n" for t in trials if t.line is not None)


def learned(trials: Iterable[Trial], folder: Path) -> None:
    """The table of `learning.py`, of these."""
    path = folder / "measured.jsonl"
    path.write_text(as_lines(trials))
    worlds = learning.real_worlds(path, N_ORDERS)
    rows = [learning.row(name, [some], learning.footprint) for name, some in worlds.items()]
    learning.table("request ≥ peak, request / peak", rows)


def main() -> None:
    arguments = parser(__doc__, "cpu")
    arguments.add_argument("--shapes", type=int, default=60, help="of each family")
    arguments.add_argument("--json", type=Path, help="file for a line of each trial")
    args = arguments.parse_args()
    until = time.monotonic() + args.budget_seconds
    trials: list[Trial] = []
    with opened(args.device) as bench, tempfile.TemporaryDirectory() as folder:
        preload_torch()
        params = list(drawn(args.shapes, small=args.device == "cpu"))
        for trial in measured(bench, params, until, Path(folder)):
            trials.append(trial)
            if args.json is not None:  # after each, so that it may be cut short
                args.json.write_text(as_lines(trials))
        if len(trials) < len(params):
            write(f"The time is over: {len(params) - len(trials)} shapes are left out.")
        table(HEAD, [cells(name, [t for t in trials if t.family == name]) for name in FAMILIES])
        unknown = {t.found.reason for t in trials if isinstance(t.found, InconclusiveSurvey)}
        for reason in sorted(unknown):
            write(f"not surveyed: {reason}")
        learned(trials, Path(folder))


if __name__ == "__main__":
    main()
