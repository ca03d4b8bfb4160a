"""Loads the data set that the `data` settings name, for a sweep or with rows to test on.

The steps are modules of their own (source, split, preprocessing) and are put together here. pandas
and scikit-learn are imported only for tables: a sweep on the generated set starts 2 s sooner
without them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from automl.config import DataConfig, DataKind, DataRule, Task
from automl.data.columns import BY, CombinedColumn, FrequencyReading, make_divided_columns
from automl.data.dataset import (
    DISC_CLASSES,
    DISC_COLUMNS,
    Dataset,
    DatasetPart,
    DiscPart,
    RefitRows,
    RowFold,
    disc_frame,
    join_parts,
    make_disc,
)
from automl.data.dataset_notes import dataset_notes, digits_notes, folds_note, pair_notes
from automl.data.folds import TableSize, folds_at_random
from automl.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from automl.data.columns import TableColumns
    from automl.data.dataset import ColumnSummary
    from automl.data.preprocessing import Preprocessing
    from automl.data.split import Rows, RowSplit
    from automl.data.tables.frames import Frame
    from automl.data.tables.table_sources import TableSource
    from automl.data.unknown_cells import TableTally


def load_dataset(config: DataConfig, refit: RefitRows | None = None) -> Dataset:
    """Return the training and validation parts of a sweep, or with `refit` of a final training.

    Raises ConfigError for a table that cannot be used.
    """
    _check_settings(config)
    if config.kind is DataKind.disc:
        return _disc(config, refit)
    if config.test_path is not None:
        from automl.data.tables.table_sources import open_test_table

        open_test_table(config)  # a wrong path fails now, and not after the sweep
    source, split, preprocessing = _prepare(config, refit)
    return _dataset(config, source, split, preprocessing, refit)


def _dataset(
    config: DataConfig,
    source: TableSource,
    split: RowSplit,
    preprocessing: Preprocessing,
    refit: RefitRows | None = None,
) -> Dataset:
    from automl.data.unknown_cells import unknown_shares

    def part(rows: Rows) -> tuple[DatasetPart, TableTally]:
        cells, tally = preprocessing.read_cells(source.frame, rows)
        return DatasetPart(cells, source.y[rows]), tally

    train, tally = part(split.train)
    giveaways, pairs, rows = _column_rows(source, preprocessing, train)
    mean, scale = _target_scale(source, train)
    folds = split.folds if refit is None else ()
    return Dataset(
        name=source.name,
        task=source.target.task,
        train=train,
        validation=part(split.validation)[0],
        classes=source.target.classes,
        columns=replace(preprocessing.columns, unknown_shares=unknown_shares(tally)),
        target_mean=mean,
        target_scale=scale,
        digest=_digest(
            config, source.target.task, source.content_digest, folds, refit, len(source.y)
        ),
        notes=(
            *source.notes,
            *digits_notes(source.target.name, train.y, mean, scale),
            *dataset_notes(source, split, preprocessing, config, giveaways),
            *pair_notes(preprocessing.columns, pairs, config.target or ""),
        ),
        target=config.target or "",
        target_reading=source.target.reading,
        kinds={**preprocessing.new_kinds, **source.target.new_kind},
        column_rows=tuple(rows),
        folds=folds,
        epoch_rows=_epoch_rows(folds),
    )


def describe_columns(config: DataConfig) -> tuple[list[ColumnSummary], tuple[str, ...]]:
    """Return a row about each column, and the lines that a sweep begins with.

    Raises ConfigError for a table that cannot be used.
    """
    source, split, preprocessing = _prepare(config)
    dataset = _dataset(config, source, split, preprocessing)
    return [*dataset.column_rows], dataset.notes


def _column_rows(
    source: TableSource, preprocessing: Preprocessing, train: DatasetPart
) -> tuple[list[str], list[CombinedColumn], list[ColumnSummary]]:
    """Return the columns and the pairs that give the target away, and a row about each column.

    All are empty for sources whose columns are known beforehand.
    """
    if source.preprocessing is not None:
        return [], [], []
    from automl.data.dataset_notes import column_overviews
    from automl.data.scoring.model_findings import find_giveaways, find_pair_giveaways

    columns = preprocessing.columns
    giveaways = find_giveaways(columns, train)
    pairs = find_pair_giveaways(columns, train, giveaways)
    return giveaways, pairs, column_overviews(columns, preprocessing.column_readings, giveaways)


def _epoch_rows(folds: Sequence[RowFold]) -> int | None:
    """Return the rows of an epoch: as many as the folds have training rows on average.

    Larger folds leave out some rows in an epoch, other rows in each. Smaller folds use some rows
    twice. None: there are no folds.
    """
    return round(np.mean([len(fold.train) for fold in folds])) if folds else None


@dataclass(frozen=True, eq=False)
class DatasetWithTest:
    """The data set of a study, and test rows that no sweep of it saw."""

    dataset: Dataset
    test: DatasetPart
    """The test rows; empty where there are none."""
    digest: str
    """Digest of the test rows, in hex."""
    test_frame: Callable[[], Frame]
    """Returns the rows of `test` as raw cells, in the same order."""
    judged_frame: Callable[[], Frame]
    """Returns the rows of `dataset.judged` as raw cells, in the same order."""


def load_dataset_with_test(config: DataConfig, own_test: str | None) -> DatasetWithTest:
    """Return the data set of a study, and test rows that no sweep of it saw.

    `own_test` is the value of `data.test` when the study was searched, which decides how its table
    was split; None: the value of today. The test rows are those of `config.test_path`, else the
    test part. Raises ConfigError like `load_dataset`, and for a test table that does not match.
    """
    _check_settings(config)
    if config.kind is DataKind.disc:
        return _disc_with_test(config)
    searched = config if own_test is None else replace(config, test=own_test)
    source, split, preprocessing = _prepare(searched)
    dataset = _dataset(searched, source, split, preprocessing)
    judged = split.train[dataset.judged_places] if dataset.folds else split.validation

    def judged_frame() -> Frame:
        return source.frame.iloc[judged]

    if config.test_path is None:
        frame, digest = source.frame.iloc[split.test], _hex(f"{dataset.digest} test")
        test = DatasetPart(preprocessing.read_cells(frame)[0], source.y[split.test])
        return DatasetWithTest(dataset, test, digest, lambda: frame, judged_frame)
    from automl.data.tables.table_sources import read_test_table

    frame, y, digest = read_test_table(config, source.target, preprocessing.columns.verbatim)
    try:
        test = DatasetPart(replace(preprocessing, columns=dataset.columns).read(frame), y)
    except ConfigError as error:
        raise ConfigError(f"data.test={config.test_path}: {error}") from error
    return DatasetWithTest(dataset, test, digest, lambda: frame, judged_frame)


def _disc_with_test(config: DataConfig) -> DatasetWithTest:
    dataset = _disc(config)
    test = make_disc(config.n_validation, config.split_seed, DiscPart.test)
    return DatasetWithTest(
        dataset,
        test,
        _hex(f"{dataset.digest} test"),
        lambda: disc_frame(test),
        lambda: disc_frame(dataset.judged),
    )


def _prepare(
    config: DataConfig, refit: RefitRows | None = None
) -> tuple[TableSource, RowSplit, Preprocessing]:
    """Return the source of a table, its split, and the preprocessing learned on its training part.

    A sweep and its later test call this function alike, so that both learn from the same rows.
    """
    source, split = _split(config)
    if refit is not None:
        from automl.data.split import regroup_rows

        split = regroup_rows(split, source.y, refit, config.split_seed, source.related)
    preprocessing = source.preprocessing or _learn_preprocessing(config, source.frame, split.train)
    preprocessing = _combine_columns(config, source, split, preprocessing, refit)
    if not preprocessing.columns.all:
        raise ConfigError(
            f"data.path={config.path}: no column but data.target={config.target} tells rows apart "
            "(they are constant, empty, or texts that do not repeat): add columns to learn from."
        )
    return source, split, preprocessing


def _split(config: DataConfig) -> tuple[TableSource, RowSplit]:
    from automl.data.split import split_rows
    from automl.data.tables.table_sources import load_digits_source, load_table_source

    source = load_digits_source() if config.kind is DataKind.digits else load_table_source(config)
    return source, split_rows(source.y, config, source.related, source.frame.shape[1])


def write_parts(config: DataConfig, folder: Path) -> None:
    """Write the parts of the table as CSV into the folder: train, validation, test. Raises
    ConfigError, also for rows that are no table."""
    if config.kind not in (DataKind.csv, DataKind.digits):
        raise ConfigError(
            f"to={folder}: data={config.kind.name} is no table that is split into parts: leave it "
            "out."
        )
    from automl.data.tables.table_sources import write_split

    write_split(folder, *_split(config))


def _learn_preprocessing(config: DataConfig, frame: pd.DataFrame, rows: Rows) -> Preprocessing:
    from automl.data.column_kinds import read_columns
    from automl.data.preprocessing import Preprocessing

    readings = read_columns(
        frame,
        config.columns,
        detect=config.follows(DataRule.detect),
        detect_verbatim=config.follows(DataRule.detect_verbatim),
        rows=rows,
    )
    return Preprocessing.fit(frame, readings, rows)


def _combine_columns(
    config: DataConfig,
    source: TableSource,
    split: RowSplit,
    preprocessing: Preprocessing,
    refit: RefitRows | None,
) -> Preprocessing:
    """Return the preprocessing with the combined columns of `data.combine`.

    Groups and times would need folds of their own to be judged by, so that auto combines none.
    """
    by_itself = config.combine == "auto" and config.follows(DataRule.combine)
    is_wanted = by_itself or not isinstance(config.combine, str)
    if not is_wanted or config.kind is not DataKind.csv or not preprocessing.columns.all:
        return preprocessing
    if config.combine != "auto":
        pairs, encoded = _named_columns(config, preprocessing.columns, is_strict=refit is None)
    elif config.group is not None or config.time is not None:
        return preprocessing
    else:
        from automl.data.pair_selection import (
            FORMER_ENCODED_ROWS,
            MAX_ENCODED_ROWS,
            draw_sample,
            select_encoded,
            select_pairs,
        )

        by_new_rule = config.follows(DataRule.combine_judgement)
        n_most = MAX_ENCODED_ROWS if by_new_rule else FORMER_ENCODED_ROWS
        sample = split.train[draw_sample(len(split.train), config.split_seed, n_most)]
        frame, y = source.frame.iloc[sample], source.y[sample]
        pairs = select_pairs(
            preprocessing,
            frame,
            y,
            of_three=config.follows(DataRule.combine_three),
            until_clear=by_new_rule,
        )
        encoded = (
            select_encoded(preprocessing, frame, y, until_clear=by_new_rule)
            if config.follows(DataRule.combine_target)
            else ()
        )
    if not pairs and not encoded:
        return preprocessing
    frame, rows = source.frame, split.train
    if encoded:
        preprocessing = preprocessing.with_target_means(frame, encoded, source.y[rows], rows)
    return preprocessing.with_pairs(frame, pairs, rows) if pairs else preprocessing


def _named_columns(
    config: DataConfig, columns: TableColumns, *, is_strict: bool
) -> tuple[Sequence[CombinedColumn], Sequence[str]]:
    """Return the pairs, and the columns to be target encoded, that the setting names.

    Raises ConfigError for an unknown one if strict: in a final training one may be constant.
    """
    from automl.data.combined_columns import find_pair

    own, by_target = columns.own, f"{config.target}{BY}"
    counted = [r.name for r in own.readings if isinstance(r, FrequencyReading)]
    encodable = {*counted, *(column.name for column in own.categories)}

    def find(text: str) -> CombinedColumn | str | None:
        name = text.removeprefix(by_target)
        return name if name != text and name in encodable else find_pair(columns, text)

    found = {text: find(text) for text in config.combine}
    unknown = [text for text, column in found.items() if column is None]
    if unknown and is_strict:
        numbers, categories = (
            ", ".join(column.name for column in kind[:10]) or "none"
            for kind in (own.numbers, own.categories)
        )
        raise ConfigError(
            f"data.combine={unknown[0]}: a combined column is two columns of numbers ({numbers}) "
            f"with +, -, * or / between them, three with *, two of categories ({categories}) "
            f"with &, or '{by_target.strip()}' and one of categories: name some of those."
        )
    pairs = [column for column in found.values() if isinstance(column, CombinedColumn)]
    return pairs, [name for name in found.values() if isinstance(name, str)]


def _disc(config: DataConfig, refit: RefitRows | None = None) -> Dataset:
    train = make_disc(config.n_train, config.split_seed, DiscPart.train)
    validation = make_disc(config.n_validation, config.split_seed, DiscPart.validation)
    folds: Sequence[RowFold] = ()
    if refit is not None:
        train, validation = _disc_for_refit(config, refit, train, validation)
    elif config.folds not in (None, 1):
        train, validation, folds = _disc_folds(config, train, validation)
    points = np.vstack([train.rows.numbers, validation.rows.numbers]).astype(np.float32)
    content = hashlib.sha256(points.tobytes()).hexdigest()
    return Dataset(
        name="disc",
        task=Task.classification,
        train=train,
        validation=validation,
        classes=DISC_CLASSES,
        columns=make_divided_columns(1.0, DISC_COLUMNS),
        target_mean=0.0,
        target_scale=1.0,
        digest=_digest(config, Task.classification, content, folds, refit),
        notes=(
            f"disc: generated, {len(train):,} train"
            + (" and judge." if folds else f", {len(validation):,} validation."),
            *folds_note(train.y, folds, DISC_CLASSES),
        ),
        folds=tuple(folds),
        epoch_rows=_epoch_rows(folds),
    )


def _disc_folds(
    config: DataConfig, train: DatasetPart, validation: DatasetPart
) -> tuple[DatasetPart, DatasetPart, Sequence[RowFold]]:
    """Return training part, validation part and folds of the disc by `data.folds`.

    With folds, the points that would choose among trials also train.
    """
    whole = join_parts(train, validation)
    n_folds = TableSize(len(whole)).n_folds(config.folds, len(whole))
    if n_folds == 1:
        return train, validation, ()
    folds = [
        replace(fold, repeat=repeat)
        for repeat in range(TableSize(len(whole)).n_repeats(config.folds))
        for fold in folds_at_random(whole.y.astype(np.int64), n_folds, config.split_seed + repeat)
    ]
    no_rows = np.zeros(0, np.int64)
    return whole, whole.take(no_rows), folds


def _disc_for_refit(
    config: DataConfig, refit: RefitRows, train: DatasetPart, validation: DatasetPart
) -> tuple[DatasetPart, DatasetPart]:
    """Return training and validation part of a final training on the disc."""
    from automl.data.split import RowSplit, regroup_rows

    whole = join_parts(
        train, validation, make_disc(config.n_validation, config.split_seed, DiscPart.test)
    )
    ends = np.cumsum([len(train), len(validation)])
    first, second, third = np.split(np.arange(len(whole)), ends)
    split = RowSplit(first, second, third, first[:0], stratified=False)
    split = regroup_rows(split, whole.y, refit, config.split_seed)
    return whole.take(split.train), whole.take(split.validation)


def _check_settings(config: DataConfig) -> None:
    """Raise ConfigError for settings that only a table obeys.

    `data.path=x` without `data=csv` is a slip.
    """
    if config.kind is DataKind.csv:
        return
    refuse_table_settings(config)
    if config.task is Task.regression:
        raise ConfigError(
            f"data.task=regression: data={config.kind.name} has classes: leave data.task out."
        )


def refuse_table_settings(config: DataConfig) -> None:
    """Raise ConfigError where a setting names a file or column although no file is read."""
    keys = {key: getattr(config, key) for key in ("path", "target", "group", "time")}
    for key, value in (keys | {"test": config.test_path}).items():
        if value is not None:
            raise ConfigError(
                f"data.{key}={value}: data={config.kind.name} reads no file: add data=csv, or "
                f"leave data.{key} out."
            )
    if config.kind is DataKind.disc:
        _check_disc(config)


def _check_disc(config: DataConfig) -> None:
    if config.sweep_rows is not None:
        raise ConfigError(
            f"data.sweep_rows={config.sweep_rows:.12g}: data=disc makes as many training points as "
            "data.n_train says: set that."
        )


LEAST_SCALE = 1e-150
"""Smallest standard deviation of a target: losses divide by its square."""


def _target_scale(source: TableSource, train: DatasetPart) -> tuple[float, float]:
    if source.target.task is Task.classification:
        return 0.0, 1.0
    from automl.data.preprocessing import learn_scale

    mean, scale = learn_scale(train.y.astype(np.float64))
    if scale < LEAST_SCALE:
        raise ConfigError(
            f"data.target={source.target.name}: its values differ by about {scale:.0e}, whose "
            "square 64 bits hold as 0: give them in a smaller unit."
        )
    return mean, scale


def _digest(
    config: DataConfig,
    task: Task,
    content: str,
    folds: Sequence[RowFold],
    refit: RefitRows | None,
    n_rows: int = 0,
) -> str:
    """Return the SHA-256, in hex, over the content and all that decides how rows are used."""
    decides: dict[str, object] = {
        "content": content,
        "kind": config.kind.name,
        "task": task.name,
        "target": config.target,
        "split_seed": config.split_seed,
    }
    if config.kind is not DataKind.disc:
        decides["validation_fraction"] = config.held_out(has_folds=bool(folds))
        decides["test_fraction"] = None if config.test_path else config.test_fraction
    if refit is not None:
        decides["refit"] = asdict(refit)
    # The keys below are newer than the first studies, whose digests must not change.
    if config.sweep_rows is not None:
        decides["sweep_rows"] = config.sweep_rows
    if folds:
        decides["folds"] = [len(folds), folds[-1].repeat + 1]
    if not folds and n_rows * config.held_out(has_folds=False) > config.max_held_out:
        decides["max_held_out"] = config.max_held_out
    related = {"group": config.group, "time": config.time}
    decides |= {key: name for key, name in related.items() if name is not None}
    if config.time is not None and config.follows(DataRule.learn_time):
        decides["learn_time"] = True
    return _hex(json.dumps(decides, sort_keys=True))


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
