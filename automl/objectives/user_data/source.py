"""Calls a user's function for its data, and derives the facts that a study needs.

The returned value is checked in `parts.py`; rows come to a device in `loader.py`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from automl.config import Task
from automl.data.dataset import NetworkOutputs, Size, UserDataFacts
from automl.data.features import are_digits_lost
from automl.errors import AutoMLError, ConfigError
from automl.in_trial.source_parts import (
    ArrayRows,
    DatasetItems,
    SourceParts,
    holds_whole_numbers,
    parse_parts,
    regroup_for_refit,
)
from automl.in_trial.user_code import open_inside, resolve_source
from automl.models.networks.user_tensors import UserTensors
from automl.objectives.training_plan import SessionSetup, TrainingPlan


def describe_data(setup: SessionSetup) -> UserDataFacts:
    """Return the facts about the plan's data, in a process that may import its source."""
    with open_inside(setup.redirect).importing():
        return read_parts(setup.plan)[1]


def open_data(setup: SessionSetup) -> UserTensors:
    """Return the plan's data. Raises ConfigError if it differs from before the first trial."""
    parts, facts = read_parts(setup.plan)
    before = setup.facts
    if before is not None and facts.digest != before.digest:
        raise ConfigError(
            f"data.source={setup.plan.data.source} gave other data than when the sweep began "
            f"({facts.n_train:,} and {facts.n_validation:,} rows, {before.n_train:,} and "
            f"{before.n_validation:,} before): it is called in every process that trains, and must "
            "give each of them the same. Seed what it draws, its split above all."
        )
    n_workers = setup.plan.training.loader_workers
    return UserTensors(parts, facts, n_workers=n_workers, room_bytes=setup.request_bytes)


def read_parts(plan: TrainingPlan) -> tuple[SourceParts, UserDataFacts]:
    """Return all parts of the plan's source, and their facts. Raises ConfigError."""
    source = str(plan.data.source)
    function = resolve_source(source)
    try:
        returned = function()
    except AutoMLError:
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise ConfigError(
            f"data.source={source} failed with {type(error).__name__}: {error}. It is called "
            "without arguments; mend it until that works."
        ) from error
    parts = parse_parts(returned, source)
    facts = derive_facts(parts, source, plan.data.task, own_loss=bool(plan.training.loss_target))
    facts = replace(facts, loss=plan.training.value_loss)
    refit_rows = None if plan.refit is None else plan.refit.own_rows
    if refit_rows is None:
        return parts, facts
    parts = regroup_for_refit(parts, refit_rows, plan.data.split_seed)
    identity = f"{facts.digest} {asdict(refit_rows)}"
    return parts, replace(
        facts,
        n_train=len(parts.train),
        n_validation=len(parts.validation),
        size_bytes=_size_bytes(parts),
        digest=hashlib.sha256(identity.encode()).hexdigest(),
    )


def derive_facts(
    parts: SourceParts, source: str, task: Task, *, own_loss: bool = False
) -> UserDataFacts:
    """Return the facts about the parts. Raises ConfigError if the targets do not suit the task."""
    key = f"data.source={source}"
    x, y = parts.train.row()
    if task is Task.auto:
        task = Task.classification if holds_whole_numbers(y) else Task.regression
    if task is Task.classification and not holds_whole_numbers(y):
        raise ConfigError(
            f"{key}: data.task=classification needs class numbers from 0 as targets, and they are "
            f"{str(y.dtype).removeprefix('torch.')}: give y.long(), or leave data.task out."
        )
    n_outputs: Size = _size(y.shape)
    outputs = NetworkOutputs.ANY if own_loss else NetworkOutputs.NUMBERS
    if task is Task.classification:
        outputs, n_outputs = _classes(parts, key, own_loss=own_loss)
    return UserDataFacts(
        name=source,
        task=task,
        outputs=outputs,
        n_train=len(parts.train),
        n_validation=len(parts.validation),
        n_inputs=_size(x.shape),
        n_outputs=n_outputs,
        takes_integers=holds_whole_numbers(x),
        size_bytes=_size_bytes(parts),
        digest=_digest(parts),
        notes=_notes(parts, source, x, y),
    )


def _size(shape: torch.Size) -> Size:
    return tuple(shape) if len(shape) > 1 else math.prod(shape)


def _classes(parts: SourceParts, key: str, *, own_loss: bool) -> tuple[NetworkOutputs, int]:
    """Return the meaning of the network's outputs and the number of classes.

    The number is what the source says, else it comes from the targets of all parts. A loss of the
    user's may take negative class numbers.
    """
    ends = [part.y.long().aminmax() for part in parts.all.values() if isinstance(part, ArrayRows)]
    least = min((int(end.min) for end in ends), default=0)
    most = max((int(end.max) for end in ends), default=-1)
    if least < 0 and not own_loss:
        raise ConfigError(
            f"{key}: its targets are whole numbers down to {least}; class numbers begin with 0. "
            "Give data.task=regression where they are amounts, or training.loss=module:function "
            "for a loss that takes them."
        )
    if parts.n_outputs is None and not all(isinstance(p, ArrayRows) for p in parts.all.values()):
        return NetworkOutputs.SCORES, _classes_of_dataset(parts, key)
    if parts.n_outputs is not None and most >= parts.n_outputs:
        raise ConfigError(
            f"{key}: its targets go up to {most}, and n_outputs says {parts.n_outputs} classes: "
            f"they are numbers from 0 to {parts.n_outputs - 1}."
        )
    return NetworkOutputs.SCORES if least >= 0 else NetworkOutputs.ANY, parts.n_outputs or max(
        1, most + 1
    )


def _classes_of_dataset(parts: SourceParts, key: str) -> int:
    """Return the number of classes from the Dataset's `classes`, which torchvision's have."""
    classes: Any = (
        getattr(parts.train.items, "classes", None)
        if isinstance(parts.train, DatasetItems)
        else None
    )
    if not classes:
        raise ConfigError(
            f'{key}: nobody says how many classes its Dataset has: add "n_outputs": 10 (say) to '
            "what it returns, or give the Dataset an attribute `classes`."
        )
    return len(classes)


def _size_bytes(parts: SourceParts) -> int | None:
    """Return the size of the training and validation rows on a device, in bytes.

    Numbers that are not whole count as float32. Returns None if a part is no tensor.
    """
    total = 0
    for part in (parts.train, parts.validation):
        if not isinstance(part, ArrayRows):
            return None
        total += part.x.numel() * (part.x.element_size() if holds_whole_numbers(part.x) else 4)
        total += part.y.numel() * 8
    return total


def _digest(parts: SourceParts) -> str:
    digest = hashlib.sha256()
    for name, part in parts.all.items():
        sides = (part.x, part.y) if isinstance(part, ArrayRows) else part.row()
        digest.update(f"{name} {len(part)} {parts.n_outputs}".encode())
        for side in sides:
            digest.update(f"{tuple(side.shape)} {side.dtype}".encode())
            if isinstance(part, ArrayRows):
                digest.update(side.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


_FIRST_ROWS = 10_000
"""Number of rows that decide whether float32 holds the user's numbers."""


def _are_rounded_away(values: torch.Tensor) -> bool:
    """Return whether float32 is too coarse for a number of the first rows (N, …)."""
    first = values[:_FIRST_ROWS].double().numpy()
    return are_digits_lost(first.mean(0), first.std(0), np.float32)


def _notes(parts: SourceParts, source: str, x: torch.Tensor, y: torch.Tensor) -> tuple[str, ...]:
    rows = ", ".join(f"{len(part):,} {name}" for name, part in parts.all.items())
    kinds = " and ".join(str(t.dtype).removeprefix("torch.") for t in (x, y))
    shapes = f"rows {tuple(x.shape)} with targets {tuple(y.shape)} ({kinds})"
    notes = [f"{source}: {rows}; {shapes}."]
    if isinstance(parts.train, ArrayRows):
        sides = {"rows": parts.train.x, "targets": parts.train.y}
        notes += [
            f"{source}: its {name} lie so far from zero that float32, in which networks compute, "
            "rounds away what they differ by: take a constant off them, and scale them."
            for name, values in sides.items()
            if (name == "targets" or not holds_whole_numbers(values)) and _are_rounded_away(values)
        ]
    if any(isinstance(part, DatasetItems) for part in parts.all.values()):
        notes.append(
            f"{source}: of a Dataset the content is not looked at before, so that no change of it "
            "is noticed when the study goes on."
        )
    return tuple(notes)
