"""Overrides of the search space, rewritten into what Hydra takes.

Hydra merges where a new entry should replace the old one, wants `+` before a new name, and refuses
sweeps without `--multirun`. Every override of `space` ends here as overrides of plain mappings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hydra.core.override_parser.types import Override, Quote, QuotedString, Sweep

from automl.cli.sweeps import canonical_entry, plain
from automl.cli.words import closest
from automl.errors import ConfigError

ENTRY_KEYS = ("low", "high", "log", "step", "choices", "when")


def rewrite(overrides: Sequence[Override]) -> list[str]:
    """The overrides as texts for Hydra, in order. Raises ConfigError."""
    lines: list[str] = []
    for override in overrides:
        if _replaces_space(override):
            # What stood before it on the line was about the space that goes.
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
            raise _one_value(key, line)
        yield line
    elif key == "space":
        yield from _whole(override, line)
    else:
        _, name, *inner = key.split(".")
        if inner:
            yield _inner(override, name, inner, line)
        else:
            yield from _replace(name, canonical_entry(name, override.value()))


def _whole(override: Override, line: str) -> Iterator[str]:
    """`space={…}` replaces, `+space={…}` adds entries, `space=NAME` chooses a file."""
    value = override.value()
    if isinstance(value, Mapping):
        if _replaces_space(override):
            yield "~space"
        for name, entry in value.items():
            yield from _replace(str(name), canonical_entry(str(name), entry))
    elif isinstance(value, str):
        yield line
    else:
        raise ConfigError(
            f"{line}: the search space is a mapping, space={{lr: {{low: 1e-4, high: 1e-1}}}}, or "
            "the name of a file of conf/space."
        )


def _replace(name: str, entry: object) -> Iterator[str]:
    yield f"++space.{name}=null"  # a mapping would be merged into the one that stands there
    yield f"++space.{name}={override_text(entry)}"


def _inner(override: Override, name: str, inner: list[str], line: str) -> str:
    """`space.depth.high=6`: one key of an entry, whether it stands there already or not."""
    if inner[0] not in ENTRY_KEYS:
        raise ConfigError(
            f"{line}: an entry of the search space has no key {inner[0]}."
            f"{closest(inner[0], ENTRY_KEYS)} Keys: {', '.join(ENTRY_KEYS)}."
        )
    value: object = override.value()
    if isinstance(value, Sweep):
        if inner != ["choices"]:
            raise _one_value(override.key_or_group, line)
        entry = canonical_entry(name, value)
        if "choices" not in entry:
            raise ConfigError(f"{line}: choices are a list, space.{name}.choices=[2,4].")
        value = entry["choices"]
    return f"++{override.key_or_group}={override_text(plain(value))}"


def _one_value(key: str, line: str) -> ConfigError:
    return ConfigError(
        f"{line}: a sweep has one value for {key}. Several values are for params of the search "
        f"space (space.NAME=…); a list is written {key}=[a,b], a text with a comma in quotes: "
        f"{key}=\"'a,b'\"."
    )


def _replaces_space(override: Override) -> bool:
    plain_change = not (override.is_add() or override.is_force_add() or override.is_delete())
    return (
        plain_change and override.key_or_group == "space" and isinstance(override.value(), Mapping)
    )


def is_about_space(line: str) -> bool:
    """Whether an override, as written, says something of the search space."""
    key = line.lstrip("+~").partition("=")[0]
    return key == "space" or key.startswith("space.")


def override_text(value: object) -> str:
    """A plain value in Hydra's override grammar."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return QuotedString(value, Quote.single).with_quotes()
    if isinstance(value, list):
        return "[" + ",".join(override_text(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{override_text(v)}" for k, v in value.items()) + "}"
    return str(value)
