"""From the `data` settings to arrays: one entry for a sweep, one for the test part.

The steps stand in modules of their own and are put together here. pandas and scikit-learn are
imported where a table needs them: a sweep on the generated set starts 2 s sooner without.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from automl.config import DataConfig, DataKind, Task
from automl.data.columns import numbers_divided_by
from automl.data.dataset import Dataset, Part, RefitRows, joined
from automl.data.generated import CLASSES, NAMES, Purpose, disc
from automl.data.one_hot import n_features
from automl.errors import ConfigError

if TYPE_CHECKING:
    from automl.data.preprocessing import Preprocessing
    from automl.data.source import Source
    from automl.data.split import Rows, Split


def load_dataset(config: DataConfig, refit: RefitRows | None = None) -> Dataset:
    """The training and validation parts, or those of a final training. Raises ConfigError for a
    table that cannot be used."""
    _check_settings(config)
    if config.kind is DataKind.disc:
        return _disc(config, refit)
    if config.test_path is not None:
        from automl.data.source import open_test_table

        open_test_table(config)  # a wrong path is said now, and not after the sweep
    source, split, preprocessing = _prepare(config, refit)

    def part(rows: Rows) -> Part:
        return Part(preprocessing.read(source.frame.iloc[rows]), source.y[rows])

    train = part(split.train)
    mean, scale = _target_scale(source, train)
    return Dataset(
        name=source.name,
        task=source.target.task,
        train=train,
        validation=part(split.validation),
        classes=source.target.classes,
        columns=preprocessing.columns,
        target_mean=mean,
        target_scale=scale,
        digest=_digest(config, source.target.task, source.content_digest, refit),
        notes=(*source.notes, *_notes(source, split, preprocessing, config)),
    )


def load_test(config: DataConfig) -> Part:
    """The part that no sweep sees, read with what the training part taught.

    Raises ConfigError like `load_dataset`, and for a test table that does not match.
    """
    _check_settings(config)
    if config.kind is DataKind.disc:
        return disc(config.n_validation, config.split_seed, Purpose.test)
    source, split, preprocessing = _prepare(config)
    if config.test_path is None:
        rows = split.test
        return Part(preprocessing.read(source.frame.iloc[rows]), source.y[rows])
    from automl.data.source import read_test_table

    frame, y = read_test_table(config, source.target)
    return Part(preprocessing.read(frame), y)


def _prepare(
    config: DataConfig, refit: RefitRows | None = None
) -> tuple[Source, Split, Preprocessing]:
    """The same for the sweep and for the test part: what is learned is from the same rows."""
    from automl.data.preprocessing import Preprocessing
    from automl.data.source import digits_source, table_source
    from automl.data.split import regrouped, split_rows

    source = digits_source() if config.kind is DataKind.digits else table_source(config)
    split = split_rows(source.y, config)
    if refit is not None:
        split = regrouped(split, source.y, refit, config.split_seed)
    preprocessing = source.preprocessing or Preprocessing.fit(source.frame.iloc[split.train])
    if not preprocessing.columns.all:
        raise ConfigError(
            f"data.path={config.path}: no column but data.target={config.target} tells rows apart "
            "(they are constant, empty, or texts that do not repeat): add columns to learn from."
        )
    return source, split, preprocessing


def _disc(config: DataConfig, refit: RefitRows | None) -> Dataset:
    train = disc(config.n_train, config.split_seed, Purpose.train)
    validation = disc(config.n_validation, config.split_seed, Purpose.validation)
    if refit is not None:
        train, validation = _disc_again(config, refit, train, validation)
    points = np.vstack([train.rows.numbers, validation.rows.numbers]).astype(np.float32)
    content = hashlib.sha256(points.tobytes()).hexdigest()
    return Dataset(
        name="disc",
        task=Task.classification,
        train=train,
        validation=validation,
        classes=CLASSES,
        columns=numbers_divided_by(1.0, NAMES),
        target_mean=0.0,
        target_scale=1.0,
        digest=_digest(config, Task.classification, content, refit),
        notes=(f"disc: generated, {len(train):,} train, {len(validation):,} validation.",),
    )


def _disc_again(
    config: DataConfig, refit: RefitRows, train: Part, validation: Part
) -> tuple[Part, Part]:
    from automl.data.split import Split, regrouped

    whole = joined(train, validation, disc(config.n_validation, config.split_seed, Purpose.test))
    ends = np.cumsum([len(train), len(validation)])
    first, second, third = np.split(np.arange(len(whole)), ends)
    split = Split(first, second, third, stratified=False)
    split = regrouped(split, whole.y, refit, config.split_seed)
    return whole.take(split.train), whole.take(split.validation)


def _check_settings(config: DataConfig) -> None:
    """Refuse settings that only a table obeys: `data.path=x` without `data=csv` is a slip."""
    if config.kind is DataKind.csv:
        return
    for key in ("path", "target", "test_path"):
        value = getattr(config, key)
        if value is not None:
            raise ConfigError(
                f"data.{key}={value}: data={config.kind.name} reads no file: add data=csv, or "
                f"leave data.{key} out."
            )
    if config.task is Task.regression:
        raise ConfigError(
            f"data.task=regression: data={config.kind.name} has classes: leave data.task out."
        )


def _target_scale(source: Source, train: Part) -> tuple[float, float]:
    if source.target.task is Task.classification:
        return 0.0, 1.0
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train.y.astype(np.float64)[:, None])
    return float(scaler.mean_[0]), float(scaler.scale_[0])


def _digest(config: DataConfig, task: Task, content: str, refit: RefitRows | None) -> str:
    """Over the content and all that decides which rows are used for what, and how."""
    decides: dict[str, object] = {
        "content": content,
        "kind": config.kind.name,
        "task": task.name,
        "target": config.target,
        "split_seed": config.split_seed,
    }
    if config.kind is not DataKind.disc:
        decides["validation_fraction"] = config.validation_fraction
        decides["test_fraction"] = None if config.test_path else config.test_fraction
    if refit is not None:
        decides["refit"] = asdict(refit)
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _notes(
    source: Source, split: Split, preprocessing: Preprocessing, config: DataConfig
) -> list[str]:
    notes = []
    if source.preprocessing is None:
        kept = {column.name for column in preprocessing.columns.all}
        left_out = [name for name in source.frame.columns if name not in kept]
        if left_out:
            notes.append(
                f"left out, being constant, empty, or texts that do not repeat: "
                f"{', '.join(left_out)}."
            )
        grouped = [c.name for c in preprocessing.columns.categories if c.has_other]
        if grouped:
            notes.append(f"rare categories are taken together in: {', '.join(grouped)}.")
        columns = preprocessing.columns
        notes.append(
            f"columns of numbers: {len(columns.numbers)}, of categories: "
            f"{len(columns.categories)}; features: {n_features(columns)}."
        )
    parts = f"{len(split.train):,} train, {len(split.validation):,} validation"
    test = f"test from {config.test_path}" if config.test_path else f"{len(split.test):,} test"
    stratified = ", each class in its share" if split.stratified else ""
    notes.append(f"split by data.split_seed={config.split_seed}: {parts}, {test}{stratified}.")
    return notes
