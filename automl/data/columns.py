"""The facts learned about each column of a table, as values that can be stored as plain ones.

A column has the numbers or categories that models see. A reading tells how a date, a text or
another cell becomes numbers. numpy only, because the generated set needs neither pandas nor
scikit-learn: `preprocessing.py` and `column_kinds.py` learn these values and apply them to frames.
"""

from __future__ import annotations

import base64
import binascii
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.data.text_values import DATE_FORMATS, DATE_PARTS

N_WORD_BUCKETS = 4096
"""Number of buckets that the words of a text column are hashed to."""
MAX_COUNTED_CATEGORIES = 1000
"""Number of categories whose frequency is kept; all others count as seen once."""
MAX_TOPICS = 64
ENCODED_PART = "target"
"""Beginning of the part of a target-encoded column; the number of a class follows."""
PLAIN_NUMBERS_REASON = "numbers"
"""The reason for the kind of a column that holds plain numbers alone."""


@dataclass(frozen=True)
class ColumnReading:
    """Base of the readings, which says how each is stored."""

    kind: ClassVar[str]

    def plain(self) -> dict[str, Any]:
        """Return the fields as plain values, and the kind; `reading_from_plain` is the reverse."""
        values = {"kind": self.kind, **{f.name: getattr(self, f.name) for f in fields(self)}}
        return {key: value for key, value in values.items() if value is not False}


@dataclass(frozen=True)
class DateReading(ColumnReading):
    """Reads a column of points in time: each cell becomes the numbers `text_values.DATE_PARTS`."""

    kind: ClassVar[str] = "date"
    verbatim: ClassVar[bool] = False
    name: str
    format: str
    """The format of the texts, one of `text_values.DATE_FORMATS`. Cells of a time type need no
    format."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the numbers that a cell becomes."""
        return DATE_PARTS


@dataclass(frozen=True)
class NumberReading(ColumnReading):
    """Reads a column of numbers in texts; a text that says no number counts as missing."""

    kind: ClassVar[str] = "number"
    verbatim: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]] = ("number",)
    name: str
    mark: str
    """The decimal mark: a point or a comma."""
    unit: str
    """The unit or currency beside the numbers, in lower case; empty: there is none."""


@dataclass(frozen=True)
class FrequencyReading(ColumnReading):
    """Reads how often a category was in the training part, as a logarithm.

    The column is a category column, too.
    """

    kind: ClassVar[str] = "frequency"
    parts: ClassVar[tuple[str, ...]] = ("frequency",)
    name: str
    counts: Mapping[str, int]
    """Rows of the training part that hold each of the most frequent categories, by its text."""
    verbatim: bool = False
    """Whether categories are codes: a cell belongs to one only if it is written alike."""

    @cached_property
    def levels(self) -> Mapping[str, int]:
        """Return the level of each counted category; all other texts have the level after these.

        The cells of target-encoded columns are levels (`target_encoding.py`).
        """
        return {text: level for level, text in enumerate(sorted(self.counts))}


@dataclass(frozen=True)
class TextReading(ColumnReading):
    """Reads texts as topics: words are hashed, weighed by how rare they are, and projected.

    This is latent semantic analysis (Deerwester et al. 1990).
    """

    kind: ClassVar[str] = "text"
    verbatim: ClassVar[bool] = False
    name: str
    idf: str
    """(N_BUCKETS,) weights of the buckets, float32, in base 64."""
    components: str
    """(topics, N_BUCKETS) projection, float16, in base 64."""

    @classmethod
    def from_arrays(
        cls, name: str, idf: npt.NDArray[Any], components: npt.NDArray[Any]
    ) -> TextReading:
        packed = (idf.astype("<f4"), components.astype("<f2"))
        return cls(name, *(base64.b64encode(array.tobytes()).decode() for array in packed))

    @cached_property
    def arrays(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the weights (N_BUCKETS,) and the components (topics, N_BUCKETS)."""
        idf = np.frombuffer(base64.b64decode(self.idf), "<f4").astype(np.float64)
        components = np.frombuffer(base64.b64decode(self.components), "<f2").astype(np.float64)
        return idf, components.reshape(-1, N_WORD_BUCKETS)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"topic{i}" for i in range(len(self.arrays[1])))


Reading: TypeAlias = "DateReading | NumberReading | FrequencyReading | TextReading"


def reading_from_plain(plain: Mapping[str, Any]) -> Reading:
    """Return the reading whose `plain()` this is.

    The values may come from a stranger's file: raises ValueError, TypeError or KeyError for
    anything that is no reading.
    """
    kind, name = plain["kind"], plain["name"]
    if not isinstance(name, str):
        raise TypeError("a reading without a name")
    match kind:
        case "date":
            form = plain["format"]
            if form not in DATE_FORMATS:
                raise ValueError(f"{form!r:.50} is no format of dates")
            return DateReading(name, form)
        case "number":
            mark, unit = plain["mark"], plain["unit"]
            if mark not in (".", ",") or not isinstance(unit, str):
                raise ValueError(f"{mark!r:.50} stands before no decimals")
            return NumberReading(name, mark, unit)
        case "frequency":
            return FrequencyReading(name, _counts(plain["counts"]), _flag(plain, "verbatim"))
        case "text":
            reading = TextReading(name, *(_text(plain[key]) for key in ("idf", "components")))
            _check_arrays(reading)
            return reading
    raise ValueError(f"{kind!r:.50} is no reading")


def _counts(plain: Any) -> dict[str, int]:
    if not isinstance(plain, Mapping) or len(plain) > MAX_COUNTED_CATEGORIES:
        raise TypeError("frequencies of too many categories, or of none")
    if any(type(k) is not str or type(v) is not int or v < 1 for k, v in plain.items()):
        raise TypeError("frequencies are whole numbers by text")
    return dict(plain)


def _shares(plain: Any) -> dict[str, float]:
    if not isinstance(plain, Mapping):
        raise TypeError("shares of unknown cells are by column")
    if any(type(k) is not str or type(v) is not float or not 0 < v <= 1 for k, v in plain.items()):
        raise ValueError("shares of unknown cells are above 0 and at most 1")
    return dict(plain)


def _flag(plain: Mapping[str, Any], key: str) -> bool:
    value = plain.get(key, False)
    if type(value) is not bool:
        raise TypeError(f"{key} is true or false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("arrays are in base 64")
    return value


def _check_arrays(reading: TextReading) -> None:
    try:
        idf, components = reading.arrays
    except binascii.Error as error:
        raise ValueError("arrays are in base 64") from error
    sizes = len(idf) == N_WORD_BUCKETS and len(components) <= MAX_TOPICS
    if not sizes or not np.isfinite(idf).all() or not np.isfinite(components).all():
        raise ValueError(f"the text column {reading.name[:50]!r} holds what no text column does")


MAX_CATEGORIES = 64
"""Largest number of features of a category column, the feature for rare categories included."""
MIN_CATEGORY_SHARE = 0.001
"""A category in fewer of the training rows than this, or in only one row, is rare."""
FORMATS = tuple(f"automl-columns-{number}" for number in range(1, 7))
"""Names of the format in the plain form: of plain columns, then with readings, codes, pairs,
products of three, target encodings. A change of layout or meaning needs a new number."""
TRUTH_BY_NUMBER = {"1": "True", "0": "False"}
"""The truth value that a number stands for in a column of truth values."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: missing cells get `fill`, then all become (value - mean) / scale."""

    name: str
    mean: float
    scale: float
    fill: float
    """The median of the training part."""
    has_indicator: bool
    """Whether a feature of its own says which cells are missing; it exists if cells were missing in
    the training part."""
    made_of: str = ""
    """The table's column from which a reading makes this one; empty: it is the table's own."""
    part: str = ""
    """The part of the reading, one of the numbers that it makes of a cell; empty: no reading."""

    @property
    def encoded_class(self) -> int | None:
        """Return the number of the class whose share in a category the column holds, 0 for the mean
        of a target of numbers; None: the column is not target encoded."""
        number = self.part.removeprefix(ENCODED_PART)
        return int(number) if number != self.part and number.isdecimal() else None


@dataclass(frozen=True)
class CategoryColumn:
    """A column of texts, one-hot encoded; the empty text stands for missing cells."""

    name: str
    categories: tuple[str, ...]
    """The texts of the categories; each category has a feature of its own."""
    has_other: bool
    """Whether one more feature stands for rare categories and for categories unseen in
    training."""
    verbatim: bool = False
    """Whether categories are codes: a cell belongs to one only if it is written alike."""

    @property
    def n_codes(self) -> int:
        """Return the number of distinct categories; a cell outside all of them has this code."""
        return len(self.categories) + self.has_other


Column: TypeAlias = "NumberColumn | CategoryColumn"
NUMBER_OPERATIONS, CROSSING = ("+", "-", "*", "/"), "&"
"""The operations that combine two number columns, and the one that crosses two category columns."""
BY = " by "
"""Stands between the target and a category column in the name of a target encoding."""


@dataclass(frozen=True)
class CombinedColumn:
    """Two columns that are combined to one more, or the three columns of a product.

    `combined_columns.py` computes the cells.
    """

    left: str
    operation: str
    """One of NUMBER_OPERATIONS, or CROSSING."""
    right: str
    third: str = ""
    """A third number column of a product; empty: there are two."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the names of the columns that are combined."""
        return (self.left, self.right, *([self.third] if self.third else []))

    @property
    def name(self) -> str:
        """Return the name of the combined column."""
        return f" {self.operation} ".join(self.sides)

    def plain(self) -> dict[str, str]:
        """Return the fields; without `third` if it is empty, as in older files."""
        return {name: text for name, text in asdict(self).items() if text}


@dataclass(frozen=True)
class TableColumns:
    """The columns that are learned from: the table's in its order, then the combined ones."""

    all: tuple[Column, ...]
    readings: tuple[Reading, ...] = ()
    """Readings of the table's columns that numbers are made of."""
    pairs: tuple[CombinedColumn, ...] = ()
    """The pairs that the last columns of `all` are made of, in their order."""
    unknown_shares: Mapping[str, float] | None = field(default=None, compare=False)
    """The share of unknown cells (`unknown_cells.py`) in training, by the table's column, where
    there were any; None: not counted, as in older files."""

    @cached_property
    def own(self) -> TableColumns:
        """Return the columns without the combined ones."""
        return replace(self, all=self.all[: len(self.all) - len(self.pairs)], pairs=())

    @property
    def pair_names(self) -> list[str]:
        return [pair.name for pair in self.pairs]

    @cached_property
    def encoded(self) -> tuple[tuple[int, NumberColumn], ...]:
        """Return the target-encoded columns, each after its place among the numbers."""
        return tuple((n, c) for n, c in enumerate(self.numbers) if c.encoded_class is not None)

    def combined_names(self, target: str) -> list[str]:
        """Return the names by which `data.combine` adds all columns that are not the table's."""
        encoded = dict.fromkeys(f"{target}{BY}{c.made_of}" for _, c in self.encoded)
        return [*self.pair_names, *encoded]

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Return the names of the table's columns that are read, in its order."""
        return tuple(dict.fromkeys(source_column(column) for column in self.own.all))

    @cached_property
    def plain_numbers(self) -> tuple[str, ...]:
        """Return the names of the table's columns that hold plain numbers."""
        return tuple(column.name for column in self.own.numbers if not column.made_of)

    @cached_property
    def numbers(self) -> tuple[NumberColumn, ...]:
        return tuple(column for column in self.all if isinstance(column, NumberColumn))

    @cached_property
    def categories(self) -> tuple[CategoryColumn, ...]:
        return tuple(column for column in self.all if isinstance(column, CategoryColumn))

    @cached_property
    def verbatim(self) -> tuple[str, ...]:
        """Return the names of the table's columns that hold codes."""
        of_categories = [column.name for column in self.categories if column.verbatim]
        of_readings = [reading.name for reading in self.readings if reading.verbatim]
        return tuple(dict.fromkeys((*of_categories, *of_readings)))

    def unknown_share(self, name: str) -> float | None:
        """Return the share of unknown cells that the table's column had in training, or None if
        nobody has counted them."""
        if self.unknown_shares is not None:
            return self.unknown_shares.get(name, 0.0)
        had_any = {column.name for column in self.own.categories if column.has_other}
        return None if name in had_any | {r.name for r in self.readings} else 0.0

    def plain(self) -> dict[str, Any]:
        """Return the columns as texts, numbers, lists and dicts, which `weights_only` loading
        accepts."""
        plain = []
        for column in self.all:
            values = asdict(column)
            if isinstance(column, CategoryColumn):
                values["categories"] = list(column.categories)
                if not column.verbatim:
                    del values["verbatim"]
            elif not column.made_of:
                del values["made_of"], values["part"]
            plain.append(values)
        readings = [reading.plain() for reading in self.readings]
        products = [pair for pair in self.pairs if pair.third]
        holds = [True, *map(bool, (readings, self.verbatim, self.pairs, products, self.encoded))]
        form = FORMATS[max(number for number, is_held in enumerate(holds) if is_held)]
        return {
            "format": form,
            "columns": plain,
            **({"readings": readings} if readings else {}),
            **({"pairs": [pair.plain() for pair in self.pairs]} if self.pairs else {}),
            **({} if self.unknown_shares is None else {"unknown": dict(self.unknown_shares)}),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TableColumns:
        """Return the columns whose `plain()` this is.

        The values may come from a stranger's file: raises ValueError for another format, and
        TypeError or KeyError for anything that is no column.
        """
        if plain.get("format") not in FORMATS:
            found = reprlib.repr(plain.get("format"))
            raise ValueError(f"preprocessing of format {found}: {', '.join(FORMATS)} are read.")
        columns = tuple(map(_column, plain["columns"]))
        readings = tuple(map(reading_from_plain, plain.get("readings", ())))
        makes = {reading.name: reading for reading in readings}
        for column in columns:
            if isinstance(column, NumberColumn) and column.made_of:
                _check_made(column, makes[column.made_of])
        pairs = tuple(CombinedColumn(**pair) for pair in plain.get("pairs", ()))
        _check_pairs(columns, pairs)
        unknown = plain.get("unknown")
        return cls(columns, readings, pairs, None if unknown is None else _shares(unknown))


def _column(plain: Mapping[str, Any]) -> Column:
    column: Column
    if "categories" in plain:
        column = CategoryColumn(**{**plain, "categories": tuple(plain["categories"])})
    else:
        column = NumberColumn(**plain)
    _check_kinds(column)
    return column


def _check_made(column: NumberColumn, reading: Reading) -> None:
    is_encoded = column.encoded_class is not None and isinstance(reading, FrequencyReading)
    if column.part not in reading.parts and not is_encoded:
        raise ValueError(f"nothing makes the column {column.name[:50]!r}")


def _check_pairs(columns: Sequence[Column], pairs: Sequence[CombinedColumn]) -> None:
    """Raise ValueError unless the last columns are made of these pairs of the columns before."""
    n_own = len(columns) - len(pairs)
    own = {column.name: column for column in columns[:n_own]}
    for column, pair in zip(columns[n_own:], pairs, strict=True):
        kind = CategoryColumn if pair.operation == CROSSING else NumberColumn
        sides = [own.get(name) for name in pair.sides]
        known = pair.operation == "*" or (
            pair.operation in (*NUMBER_OPERATIONS, CROSSING) and not pair.third
        )
        fits = known and column.name == pair.name
        if not fits or not all(isinstance(side, kind) for side in (column, *sides)):
            raise ValueError(f"nothing makes the column {column.name[:50]!r}")


def _check_kinds(column: Column) -> None:
    """Raise TypeError where a value has not the column's type, ValueError for a scale that cannot
    be divided by."""
    texts: tuple[object, ...] = (column.name,)
    flags: tuple[object, ...]
    numbers: tuple[object, ...] = ()
    if isinstance(column, NumberColumn):
        texts, flags = (*texts, column.made_of, column.part), (column.has_indicator,)
        numbers = (column.mean, column.scale, column.fill)
    else:
        texts, flags = (*texts, *column.categories), (column.has_other, column.verbatim)
    found = {*map(type, texts)}, {*map(type, flags)}, {*map(type, numbers)}
    if found[0] != {str} or found[1] != {bool} or not found[2] <= {int, float}:
        raise TypeError(f"the column {str(column.name)[:50]!r} holds what no column does")
    if isinstance(column, NumberColumn) and not column.scale > 0:
        raise ValueError(f"the column {column.name[:50]!r} has no scale")


def holds_truths(texts: Collection[str]) -> bool:
    """Return whether the known texts of a column are truth values."""
    known = {*texts} - {""}
    return bool(known) and known <= {*TRUTH_BY_NUMBER.values()}


def source_column(column: Column) -> str:
    """Return the name of the table's column that this column is, or is made of."""
    return (column.made_of if isinstance(column, NumberColumn) else "") or column.name


def make_divided_columns(scale: float, names: Sequence[str]) -> TableColumns:
    """Return number columns that are divided by `scale`.

    Their range is known beforehand, so that nothing has to be learned.
    """
    return TableColumns(
        tuple(
            NumberColumn(name, mean=0.0, scale=scale, fill=0.0, has_indicator=False)
            for name in names
        )
    )
