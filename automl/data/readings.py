"""How columns that are neither plain numbers nor categories become numbers: what was learned, as
values that go to plain ones and back. numpy only; `making.py` applies them to frames.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.data.said import DATE_FORMATS, DATE_PARTS

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


def reading_of(plain: Mapping[str, Any]) -> Reading:
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
