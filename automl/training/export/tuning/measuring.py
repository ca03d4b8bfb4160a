"""Measures the ways one after the other, and keeps what was seen when it is interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from automl.errors import AutoMLError
from automl.training.cores import computing_with
from automl.training.export.tuning.accuracy import Validation
from automl.training.export.tuning.choice import Measured
from automl.training.export.tuning.timing import SECONDS_PER_WAY, time_calls
from automl.training.export.tuning.workshop import Made, NotHereError, Way, Workshop
from automl.training.model_file import short
from automl.training.predictor import Predictor


@dataclass
class Seen:
    """What was measured, in its order."""

    ways: list[Measured] = field(default_factory=list)
    files: dict[str, Made] = field(default_factory=dict)
    """By label, those that an export can be."""
    interrupted: bool = False


def seconds_needed(ways: Sequence[Way]) -> float:
    """About, where all of them can be measured and the machine is free."""
    return sum(way.making_seconds + SECONDS_PER_WAY for way in ways if not way.why_not)


def measure(
    predictor: Predictor,
    validation: Validation,
    ways: Sequence[Way],
    folder: Path,
    show: Callable[[int, Measured], None],
) -> Seen:
    """Each of them, with rows of `validation`, `show` being told; files are made in `folder`.

    Ctrl-C ends it: what was not measured says so. Raises AutoMLError for a model that is not
    exported, and KeyboardInterrupt before anything was measured.
    """
    shop, seen = Workshop(predictor, validation.arrays, folder), Seen()
    try:
        for number, way in enumerate(ways):
            seen.ways.append(_measured(way, shop, validation, seen.files))
            if not way.why_not:
                show(number, seen.ways[-1])
    except KeyboardInterrupt:
        if not any(one.timing for one in seen.ways):
            raise
        seen.interrupted = True
        rest = ways[len(seen.ways) :]
        seen.ways += [Measured(way.name, way.threads, why_not="interrupted") for way in rest]
    return seen


def _measured(way: Way, shop: Workshop, validation: Validation, files: dict[str, Made]) -> Measured:
    if way.why_not:
        return Measured(way.name, way.threads, why_not=way.why_not)
    with computing_with(way.threads or torch.get_num_threads()):
        try:
            made = way.make(shop)
            timing = time_calls(made.scores, validation.arrays, time.perf_counter)
            loss = validation.loss_of(made.scores, one_by_one=way.rounds)
        except (NotHereError, AutoMLError) as error:  # the latter: no finite scores
            return Measured(way.name, way.threads, why_not=str(error))
        except Exception as error:  # noqa: BLE001  # whatever a compiler or a runtime raises
            return Measured(
                way.name, way.threads, why_not=f"{type(error).__name__}: {short(error)}"
            )
    within = loss <= validation.most
    measured = Measured(
        way.name, way.threads, timing, loss, within, way.rounds, made.file is not None
    )
    if made.file is not None:
        files[measured.label] = made
    return measured
