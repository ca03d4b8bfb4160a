"""Overrides that Hydra's grammar would misread, rewritten into overrides that it takes.

The search space: Hydra merges where a new entry should replace the old one, wants `+` before a new
name, and refuses sweeps without `--multirun`. Every override of `space` becomes overrides of plain
mappings here. The short notation of a range (`2..8`, `config/range_text.py`) becomes its mapping.
Hydra's sweep notation becomes the mapping of the same meaning: `interval(1e-4,1e-1)`
→ `{low: 0.0001, high: 0.1}`; `32,64` → `{choices: [32, 64]}`; `range(2,9)` → `{low: 2, high: 8}`,
the end exclusive as in Python; `int(interval(2,8))` → whole numbers, 8 included; `tag(log, …)` adds
`log: true`. `search/search_space.py` checks whether low, high and choices make sense.

Texts that are taken as typed: a command, a pattern, a table, the name of a column.
`objective.command=python train.py --lr {lr}` is no text in Hydra's grammar, which would read the
braces as a mapping and refuse the rest. The name of a column may hold spaces and dots, which a key
may not; it is written as a key of a mapping.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Glob,
    IntervalSweep,
    Override,
    Quote,
    QuotedString,
    RangeSweep,
    Sweep,
)
from hydra.errors import HydraException

from automl.cli.command_registry import closest_word
from automl.cli.config_keys import all_config_keys
from automl.config.other_distributions import nearest_to_text
from automl.config.range_text import RANGE_FORMS_TEXT, parse_range
from automl.errors import ConfigError

_CALL = re.compile(
    r"\s*(choice|range|interval|tag|sort|shuffle|glob|int|float|str|bool)\s*\(.*\)\s*"
)
SPACE_FORMS_TEXT = (
    f"a param is written as {RANGE_FORMS_TEXT}, 32,64 or one value; as a mapping {{low: 2, high: "
    "8}; or in Hydra's notation: interval(1e-4,1e-1), range(2,9), tag(log,interval(1e-4,1e-1))"
)


def canonical_space(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a space whose entries are all mappings or single values. Raises ConfigError."""
    return {str(name): canonical_entry(str(name), entry) for name, entry in space.items()}


def canonical_entry(name: str, entry: object) -> Any:
    """Return one entry as a mapping or a single value; an entry that is neither sweep nor list
    stays."""
    if isinstance(entry, QuotedString):
        entry = entry.text
    if isinstance(entry, str):
        entry = _parse(name, entry)
    if isinstance(entry, Glob):
        raise _refusal(name, "glob(…)", "chooses among files, not values")
    if isinstance(entry, list):
        return {"choices": [plain_entry(value) for value in entry]}
    return _from_sweep(name, entry) if isinstance(entry, Sweep) else plain_entry(entry)


def plain_entry(value: object) -> Any:
    """Return the value with Hydra's quoted strings as strings, at any depth."""
    if isinstance(value, QuotedString):
        return value.text
    if isinstance(value, list):
        return [plain_entry(v) for v in value]
    if isinstance(value, Mapping):
        return {plain_entry(k): plain_entry(v) for k, v in value.items()}
    return value


def is_call(text: str) -> bool:
    """Return whether a text spells one of Hydra's sweep functions, such as interval(1,2)."""
    return _CALL.fullmatch(text) is not None


def _parse(name: str, text: str) -> object:
    """Return the range or the sweep that a string spells, else the string itself."""
    if "${" in text:
        return text
    if (nearest := nearest_to_text(text)) is not None:
        raise ConfigError(f"space.{name}={text}: is no notation of a space; {nearest}.")
    if not (is_call(text) or "," in text):
        found = parse_range(f"space.{name}", text)
        return text if found is None else found
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
        _refuse_ranges(name, sweep.list)
        return {"choices": [plain_entry(value) for value in sweep.list]}
    if isinstance(sweep, RangeSweep):
        return _from_range(name, sweep) | log
    assert isinstance(sweep, IntervalSweep)
    return {"low": sweep.start, "high": sweep.end} | log


def _refuse_ranges(name: str, choices: Sequence[object]) -> None:
    for value in choices:
        if isinstance(value, str) and parse_range(f"space.{name}", value) is not None:
            raise ConfigError(
                f"space.{name}={value},…: a choice is one value, not a range. Give one range, or "
                f"texts as they are: {{choices: ['{value}', …]}}."
            )


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
    return ConfigError(f"space.{name}={text}: {why}; {SPACE_FORMS_TEXT}.")


ENTRY_KEYS = ("low", "high", "log", "step", "choices", "when", "likely", "default")


def rewrite_overrides(overrides: Sequence[Override]) -> list[str]:
    """Return the overrides as texts for Hydra, in order. Raises ConfigError."""
    lines: list[str] = []
    for override in overrides:
        if _replaces_space(override):
            # Earlier overrides on the line changed the space that is replaced now.
            lines = [line for line in lines if not is_about_space(line)]
        lines.extend(_rewrite(override))
    return lines


def _rewrite(override: Override) -> Iterator[str]:
    line, key = override.input_line or "", override.key_or_group
    if not key:
        raise ConfigError(f"{line}: settings are written key=value.")
    about_space = key == "space" or key.startswith("space.")
    if not about_space or override.package is not None or override.is_delete():
        if override.is_sweep_override():
            raise _several_values_error(key, line)
        yield line
    elif key == "space":
        yield from _space_overrides(override, line)
    else:
        _, name, *keys = key.split(".")
        if keys:
            yield _entry_key_override(override, name, keys, line)
        else:
            yield from _entry_overrides(name, canonical_entry(name, override.value()))


def _space_overrides(override: Override, line: str) -> Iterator[str]:
    """Yield the overrides for a whole space: `space={…}` replaces it, `+space={…}` adds entries,
    `space=NAME` chooses a file."""
    value = override.value()
    if isinstance(value, Mapping):
        if _replaces_space(override):
            yield "~space"
        for name, entry in value.items():
            yield from _entry_overrides(str(name), canonical_entry(str(name), entry))
    elif isinstance(value, str):
        yield line
    else:
        raise ConfigError(
            f"{line}: the search space is a mapping, space={{lr: {{low: 1e-4, high: 1e-1}}}}, or "
            "the name of a file of conf/space."
        )


def _entry_overrides(name: str, entry: object) -> Iterator[str]:
    yield f"++space.{name}=null"  # a mapping would be merged into the one that stands there
    yield f"++space.{name}={override_text(entry)}"


def _entry_key_override(override: Override, name: str, keys: list[str], line: str) -> str:
    """Return the override of one key of an entry (`space.depth.high=6`), whether the key exists or
    not."""
    if keys[0] not in ENTRY_KEYS:
        raise ConfigError(
            f"{line}: an entry of the search space has no key {keys[0]}."
            f"{closest_word(keys[0], ENTRY_KEYS)} Keys: {', '.join(ENTRY_KEYS)}."
        )
    value: object = override.value()
    if isinstance(value, Sweep):
        if keys != ["choices"]:
            raise _several_values_error(override.key_or_group, line)
        entry = canonical_entry(name, value)
        if "choices" not in entry:
            raise ConfigError(f"{line}: choices are a list, space.{name}.choices=[2,4].")
        value = entry["choices"]
    return f"++{override.key_or_group}={override_text(plain_entry(value))}"


def _several_values_error(key: str, line: str) -> ConfigError:
    param = (
        "space.NAME=…"
        if "." in key or key in all_config_keys()
        else shlex.quote(f"space.{line.lstrip('+')}")
    )
    return ConfigError(
        f"{line}: a sweep has one value for {key}. Several values are for params of the search "
        f"space ({param}); a list is written {key}=[a,b], a text with a comma in quotes: "
        f"{key}=\"'a,b'\"."
    )


def _replaces_space(override: Override) -> bool:
    plain_change = not (override.is_add() or override.is_force_add() or override.is_delete())
    return (
        plain_change and override.key_or_group == "space" and isinstance(override.value(), Mapping)
    )


def is_about_space(line: str) -> bool:
    """Return whether an override, as written, concerns the search space."""
    key = line.lstrip("+~").partition("=")[0]
    return key == "space" or key.startswith("space.")


def override_text(value: object) -> str:
    """Return a plain value in Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list):
        return "[" + ",".join(override_text(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(k)}:{override_text(v)}" for k, v in value.items()) + "}"
    return str(value)


def _key(name: object) -> str:
    """Return a key of a mapping in Hydra's grammar, which takes keys without quotes only."""
    return re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", str(name))


_RAW = re.compile(
    r"(\+{0,2}(?:objective\.(?:command|pattern)|data\.(?:path|target))=)(.*)", re.DOTALL
)
_ENTRIES = (
    re.compile(r"\+{0,2}(data\.columns)\.([^\n]+)=(\w+)"),
    re.compile(r"\+{0,2}(study\.constraints)\.([^\n=]+)=(\w+)"),
    re.compile(r"\+{0,2}(model\.weights)\.(\w+)=([^\n{}\[\]'\"]+)"),
)
"""Entries of settings whose names are those of columns, of metrics, or of families."""
_NEW_KEYS = "study.constraints={"
"""Begins an override of a setting whose keys are the user's."""
_NULL = frozenset(("", "null", "???"))


def parse_overrides(lines: Sequence[str]) -> list[Override]:
    """Parse overrides as typed. Raises OverrideParseException."""
    return OverridesParser.create().parse_overrides(list(map(quote_raw_texts, lines)))


def quote_raw_texts(override: str) -> str:
    """Return the override as Hydra takes it; a value that is quoted for Hydra already stays."""
    for pattern in _ENTRIES:
        if entry := pattern.fullmatch(override):
            return f"++{entry[1]}={override_text({entry[2]: entry[3]})}"  # adds to the others
    if override.startswith(_NEW_KEYS):
        return f"++{override}"
    match = _RAW.fullmatch(override)
    if match is None or match[2] in _NULL or _is_quoted(match[2]):
        return override
    return match[1] + override_text(match[2])


def _is_quoted(value: str) -> bool:
    """Return whether one pair of quotation marks encloses the whole value: `'a' 'b'` is a command
    of two words."""
    mark, inner = value[0], value[1:-1]
    if mark not in "'\"" or not value.endswith(mark) or len(value) < 2:
        return False
    return re.search(rf"(?<!\\){mark}", inner) is None
