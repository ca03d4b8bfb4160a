"""Hydra's sweep notation for params, and the mapping that means the same.

`interval(1e-4,1e-1)` → `{low: 0.0001, high: 0.1}`; `32,64` → `{choices: [32, 64]}`; `range(2,9)` →
`{low: 2, high: 8}`, the end exclusive as in Python; `int(interval(2,8))` → whole numbers, 8
included; `tag(log, …)` adds `log: true`. Whether low, high and choices make sense is for
`search/space.py` to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Glob,
    IntervalSweep,
    QuotedString,
    RangeSweep,
    Sweep,
)
from hydra.errors import HydraException

from automl.errors import ConfigError

_CALL = re.compile(
    r"\s*(choice|range|interval|tag|sort|shuffle|glob|int|float|str|bool)\s*\(.*\)\s*"
)
FORMS = (
    "a param is written as interval(1e-4,1e-1), range(2,9), tag(log,interval(1e-4,1e-1)), "
    "int(tag(log,interval(8,512))), choice(sgd,adam), 32,64 or {low: 2, high: 8}"
)


def canonical_space(space: Mapping[str, Any]) -> dict[str, Any]:
    """A space whose entries are all mappings or single values. Raises ConfigError."""
    return {str(name): canonical_entry(str(name), entry) for name, entry in space.items()}


def canonical_entry(name: str, entry: object) -> Any:
    """One entry as a mapping or a single value; what is neither sweep nor list is left alone."""
    if isinstance(entry, QuotedString):
        entry = entry.text
    if isinstance(entry, str):
        entry = _parse(name, entry)
    if isinstance(entry, Glob):
        raise _refusal(name, "glob(…)", "chooses among files, not values")
    if isinstance(entry, list):
        return {"choices": [plain(value) for value in entry]}
    return _from_sweep(name, entry) if isinstance(entry, Sweep) else plain(entry)


def plain(value: object) -> Any:
    """Hydra's quoted strings as strings, at any depth."""
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, Mapping):
        return {plain(k): plain(v) for k, v in value.items()}
    return value


def _parse(name: str, text: str) -> object:
    """A string of a YAML file, or a quoted one: the sweep it spells, else itself."""
    if "${" in text or not (_CALL.fullmatch(text) or "," in text):
        return text
    try:
        return OverridesParser.create().parse_override(f"param={text.strip()}").value()
    except HydraException as error:
        raise _refusal(name, text, str(error)) from error


def _from_sweep(name: str, sweep: Sweep) -> dict[str, Any]:
    unknown = sweep.tags - {"log"}
    if unknown:
        raise _refusal(name, f"tag({', '.join(sorted(unknown))}, …)", "the only tag is log")
    log = {"log": True} if "log" in sweep.tags else {}
    if isinstance(sweep, ChoiceSweep):
        if log:
            raise _refusal(name, "tag(log, …)", "a choice has no scale: tag a range or an interval")
        return {"choices": [plain(value) for value in sweep.list]}
    if isinstance(sweep, RangeSweep):
        return _from_range(name, sweep) | log
    assert isinstance(sweep, IntervalSweep)
    return {"low": sweep.start, "high": sweep.end} | log


def _from_range(name: str, sweep: RangeSweep) -> dict[str, Any]:
    assert sweep.start is not None
    assert sweep.stop is not None
    whole = all(isinstance(value, int) for value in (sweep.start, sweep.stop, sweep.step))
    # Decimals of the written numbers, so that range(0,1,0.1) ends at 0.9 and not beside it.
    start, stop, step = (Decimal(str(v)) for v in (sweep.start, sweep.stop, sweep.step))
    if not (step > 0 and start < stop):
        text = f"range({sweep.start},{sweep.stop},{sweep.step})"
        raise _refusal(name, text, "holds no value: the end is exclusive, the step above 0")
    last = start + ((stop - start) / step).to_integral_value(ROUND_CEILING) * step - step
    number = int if whole else float
    steps = {} if whole and step == 1 else {"step": number(step)}
    return {"low": number(start), "high": number(last)} | steps


def _refusal(name: str, text: str, why: str) -> ConfigError:
    return ConfigError(f"space.{name}={text}: {why}; {FORMS}.")
