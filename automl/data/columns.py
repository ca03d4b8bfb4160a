"""What was learned of each column of a table, as values that go to plain ones and back.

No pandas and no scikit-learn: the generated set needs neither. `preprocessing.py` learns them and
reads frames by them.

How columns that are neither plain numbers nor categories become numbers: what was learned, as
values that go to plain ones and back. numpy only; `column_kinds.py` applies them to frames.
"""

from __future__ import annotations

import base64
import binascii
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.data.text_values import DATE_FORMATS, DATE_PARTS

N_BUCKETS = 4096
"""That words of a text column are hashed to."""
MAX_COUNTED = 1000
"""Categories whose frequency is kept; the others count as seen once."""
MAX_TOPICS = 64


@dataclass(frozen=True)
class DateReading:
    """Points in time; see `said.DATE_PARTS`."""

    kind: ClassVar[str] = "date"
    verbatim: ClassVar[bool] = False
    name: str
    format: str
    """One of `said.DATE_FORMATS`: of texts. Times need none."""

    @property
    def parts(self) -> tuple[str, ...]:
        """What a cell becomes."""
        return DATE_PARTS

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "format": self.format}


@dataclass(frozen=True)
class NumberReading:
    """Numbers in texts; a text that says none is missing."""

    kind: ClassVar[str] = "number"
    verbatim: ClassVar[bool] = False
    parts: ClassVar[tuple[str, ...]] = ("number",)
    name: str
    mark: str
    """Before the decimals."""
    unit: str
    """In lower case; empty: none."""

    def plain(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "mark": self.mark, "unit": self.unit}


@dataclass(frozen=True)
class FrequencyReading:
    """How often a category was in the training part, as a logarithm; beside the category."""

    kind: ClassVar[str] = "frequency"
    parts: ClassVar[tuple[str, ...]] = ("frequency",)
    name: str
    counts: Mapping[str, int]
    """Of the most frequent."""
    verbatim: bool = False
    """Categories are codes: cells belong to one only if they are written alike."""

    def plain(self) -> dict[str, Any]:
        own = {"verbatim": True} if self.verbatim else {}
        return {"kind": self.kind, "name": self.name, "counts": dict(self.counts), **own}


@dataclass(frozen=True)
class TextReading:
    """Words, hashed, weighed by how rare they are, and projected (latent semantic analysis,
    Deerwester et al. 1990)."""

    kind: ClassVar[str] = "text"
    verbatim: ClassVar[bool] = False
    name: str
    idf: str
    """(N_BUCKETS,) float32, in base 64."""
    components: str
    """(topics, N_BUCKETS) float16, in base 64."""

    @classmethod
    def of(cls, name: str, idf: npt.NDArray[Any], components: npt.NDArray[Any]) -> TextReading:
        packed = (idf.astype("<f4"), components.astype("<f2"))
        return cls(name, *(base64.b64encode(array.tobytes()).decode() for array in packed))

    @cached_property
    def arrays(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Of weights (N_BUCKETS,), and of components (topics, N_BUCKETS)."""
        idf = np.frombuffer(base64.b64decode(self.idf), "<f4").astype(np.float64)
        components = np.frombuffer(base64.b64decode(self.components), "<f2").astype(np.float64)
        return idf, components.reshape(-1, N_BUCKETS)

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"topic{i}" for i in range(len(self.arrays[1])))

    def plain(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "idf": self.idf,
            "components": self.components,
        }


Reading: TypeAlias = "DateReading | NumberReading | FrequencyReading | TextReading"


def reading_from_plain(plain: Mapping[str, Any]) -> Reading:
    """What `plain` took apart; the file may be a stranger's. Raises ValueError, TypeError or
    KeyError for what is no reading."""
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
    if not isinstance(plain, Mapping) or len(plain) > MAX_COUNTED:
        raise TypeError("frequencies of too many categories, or of none")
    if any(type(k) is not str or type(v) is not int or v < 1 for k, v in plain.items()):
        raise TypeError("frequencies are whole numbers by text")
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
    sizes = len(idf) == N_BUCKETS and len(components) <= MAX_TOPICS
    if not sizes or not np.isfinite(idf).all() or not np.isfinite(components).all():
        raise ValueError(f"the text column {reading.name[:50]!r} holds what no text column does")


MAX_CATEGORIES = 64
"""Features per category column at most, the one for rare categories included."""
FORMAT = "automl-columns-1"
"""Stands in the plain form; a change of its layout, or of what it means, is a new number."""
FORMAT_WITH_READINGS = "automl-columns-2"
"""The same with numbers that are made of cells; where there are none it is the first."""
FORMAT_WITH_CODES = "automl-columns-3"
"""The same with columns of codes; where there are none it is one of the other two."""


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: missing cells get `fill`, then all become (value - mean) / scale."""

    name: str
    mean: float
    scale: float
    fill: float
    """The median of the training part."""
    has_indicator: bool
    """A feature of its own says which cells are missing (some were in the training part)."""
    made_of: str = ""
    """The table's column whose `DeviceReading` makes it; empty: it is one itself."""
    part: str = ""
    """Which of the numbers that the reading makes."""


@dataclass(frozen=True)
class CategoryColumn:
    """A column of texts, one-hot encoded; the empty text stands for missing cells."""

    name: str
    categories: tuple[str, ...]
    """Each has a feature of its own."""
    has_other: bool
    """One more stands for rare categories, and for those not seen in training."""
    verbatim: bool = False
    """Categories are codes: cells belong to one only if they are written alike."""

    @property
    def n_codes(self) -> int:
        """Categories that are told apart; a cell that is none of them has this code."""
        return len(self.categories) + self.has_other


Column: TypeAlias = "NumberColumn | CategoryColumn"


@dataclass(frozen=True)
class TableColumns:
    """The columns that are learned from, in the table's order."""

    all: tuple[Column, ...]
    readings: tuple[Reading, ...] = ()
    """Of the table's columns that numbers are made of."""

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """The table's columns that are read, in its order."""
        return tuple(dict.fromkeys(source_of(column) for column in self.all))

    @cached_property
    def plain_numbers(self) -> tuple[str, ...]:
        """Those of them that hold numbers as they are."""
        return tuple(column.name for column in self.numbers if not column.made_of)

    @cached_property
    def numbers(self) -> tuple[NumberColumn, ...]:
        return tuple(column for column in self.all if isinstance(column, NumberColumn))

    @cached_property
    def categories(self) -> tuple[CategoryColumn, ...]:
        return tuple(column for column in self.all if isinstance(column, CategoryColumn))

    @cached_property
    def verbatim(self) -> tuple[str, ...]:
        """Names of the table's columns that hold codes."""
        of_categories = [column.name for column in self.categories if column.verbatim]
        of_readings = [reading.name for reading in self.readings if reading.verbatim]
        return tuple(dict.fromkeys((*of_categories, *of_readings)))

    def plain(self) -> dict[str, Any]:
        """As text, numbers, lists and dicts: what `weights_only` loading accepts."""
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
        form = FORMAT_WITH_READINGS if self.readings else FORMAT
        form = FORMAT_WITH_CODES if self.verbatim else form
        readings = [reading.plain() for reading in self.readings]
        return {
            "format": form,
            "columns": plain,
            **({"readings": readings} if readings else {}),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TableColumns:
        """What `plain` took apart.

        Raises ValueError for another format, and TypeError or KeyError for what is no column: the
        file that they stand in may be a stranger's.
        """
        formats = (FORMAT, FORMAT_WITH_READINGS, FORMAT_WITH_CODES)
        if plain.get("format") not in formats:
            found = reprlib.repr(plain.get("format"))
            raise ValueError(f"preprocessing of format {found}: {', '.join(formats)} are read.")
        columns = tuple(map(_column, plain["columns"]))
        readings = tuple(map(reading_from_plain, plain.get("readings", ())))
        makes = {reading.name: reading.parts for reading in readings}
        for column in columns:
            if isinstance(column, NumberColumn) and column.made_of:
                _check_made(column, makes[column.made_of])
        return cls(columns, readings)


def _column(plain: Mapping[str, Any]) -> Column:
    column: Column
    if "categories" in plain:
        column = CategoryColumn(**{**plain, "categories": tuple(plain["categories"])})
    else:
        column = NumberColumn(**plain)
    _check_kinds(column)
    return column


def _check_made(column: NumberColumn, parts: Sequence[str]) -> None:
    if column.part not in parts:
        raise ValueError(f"nothing makes the column {column.name[:50]!r}")


def _check_kinds(column: Column) -> None:
    """Raises TypeError where a value is not of the kind that the column says, ValueError for a
    scale that cannot be divided by."""
    names = (
        (column.name, column.made_of, column.part)
        if isinstance(column, NumberColumn)
        else (column.name,)
    )
    if not all(isinstance(name, str) for name in names):
        raise TypeError("a column without a name")
    flag, *others = (
        (column.has_indicator, column.mean, column.scale, column.fill)
        if isinstance(column, NumberColumn)
        else (column.has_other, *column.categories)
    )
    kinds = (int, float) if isinstance(column, NumberColumn) else (str,)
    flags = (flag, getattr(column, "verbatim", False))
    if {*map(type, flags)} != {bool} or any(type(value) not in kinds for value in others):
        raise TypeError(f"the column {column.name[:50]!r} holds what no column does")
    if isinstance(column, NumberColumn) and not column.scale > 0:
        raise ValueError(f"the column {column.name[:50]!r} has no scale")


def source_of(column: Column) -> str:
    """The table's column that it is, or is made of."""
    return (column.made_of if isinstance(column, NumberColumn) else "") or column.name


def numbers_divided_by(scale: float, names: Sequence[str]) -> TableColumns:
    """Columns whose range is known beforehand, so that nothing has to be learned."""
    return TableColumns(
        tuple(
            NumberColumn(name, mean=0.0, scale=scale, fill=0.0, has_indicator=False)
            for name in names
        )
    )
