"""The one table of keys that were renamed, merged with another key, or dropped.

Stored files, stored identities and events of earlier versions are read by it silently and for ever.
Words of a command line are changed by it with one line of advice. Nothing else knows an old key. A
key that is renamed or dropped gets a row in `MOVED` or `DROPPED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automl.errors import ConfigError

_NONE_TEXTS = ("", "null", "none", "off", "false")


def is_none(value: object) -> bool:
    """Return whether a stored value, or a text of a command line, is a spelling of `none`."""
    return value is None or str(value).lower() in _NONE_TEXTS


@dataclass(frozen=True)
class MovedKey:
    """A key of today that has taken the place of old keys."""

    key: str
    old: tuple[str, ...]
    """The keys that are read; `key` itself is one of them where an old key is merged into it."""
    value: Callable[..., Any] | None = None
    """Returns the value of `key` from those of `old`, None for each that is not given. A value is a
    plain value, or text of a command line. It returns None where nothing is said that differs from
    the default. Without the function, the value is that of the one old key."""

    def __call__(self, given: Mapping[str, Any]) -> Any:
        """Return the value of `key`; None where the old values say nothing."""
        values = [given.get(old) for old in self.old]
        return values[0] if self.value is None else self.value(*values)


@dataclass(frozen=True)
class DroppedKey:
    """A key that is no setting any more, because its default is the only value."""

    key: str
    default: Any
    rule: str
    """What is done now, as a sentence for whoever gives another value."""


def _finish(finish: Any, *parts: Any) -> Any:
    """Return the parts of a sweep's end that are not switched off, unless `finish` is given."""
    if finish is not None:
        return finish
    names = ("ensemble", "refit", "plots")
    kept = [name for name, part in zip(names, parts, strict=True) if not _is_off(part)]
    return "auto" if len(kept) == len(names) else kept or "none"


def _test(test: Any, path: Any, fraction: Any) -> Any:
    """Return the test table, else the share of the rows."""
    if test is not None or not is_none(path):
        return path if test is None else test
    if is_none(fraction):
        return None
    return "none" if str(fraction) in ("0", "0.0") else fraction


def _uri(uri: Any, store: Any) -> Any:
    if store is None or uri is not None:
        return uri if not _is_off(store) else "none"
    return "none" if is_none(store) else "auto"


def _loss(loss: Any, quantile: Any) -> Any:
    """Return the loss with the share of targets that lie below the predictions."""
    is_used = loss in (None, "quantile") and quantile is not None
    return f"quantile:{quantile}" if is_used else loss


def _is_off(value: Any) -> bool:
    """Return whether a value is given and is `none`."""
    return value is not None and is_none(value)


MOVED: Sequence[MovedKey] = (
    MovedKey(
        "study.finish", ("study.finish", "study.ensemble", "study.refit", "study.plots"), _finish
    ),
    MovedKey("data.test", ("data.test", "data.test_path", "data.test_fraction"), _test),
    MovedKey("tracking.uri", ("tracking.uri", "tracking.store"), _uri),
    MovedKey("training.loss", ("training.loss", "training.quantile"), _loss),
    MovedKey("study.keep_best", ("tracking.keep_best",)),
    MovedKey("study.checkpoint_copies", ("study.checkpoints",)),
)
DROPPED: Sequence[DroppedKey] = ()


def rename_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command line with today's keys, and a line of advice for each change.

    Raises ConfigError for a dropped key with another value than its default.
    """
    renamed, advice = list(words), []
    for row in MOVED:
        old_words = [word for word in renamed if _key(word) in row.old]
        given = {_key(word): word.partition("=")[2] for word in old_words}
        if not given or set(given) == {row.key}:
            continue
        value = row(given)
        last = max(i for i, word in enumerate(renamed) if word in old_words)
        new = [] if value is None else [f"{row.key}={_text(value)}"]
        before, after = renamed[:last], renamed[last + 1 :]
        renamed = [*(word for word in before if word not in old_words), *new, *after]
        written = f"write {new[0]}" if new else "leave it out"
        advice.append(f"{' '.join(old_words)} is an old way to say it: {written}.")
    return [word for word in renamed if not _is_dropped(word)], advice


def rename_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings (`data.path`) of an earlier version with today's keys."""
    renamed = dict(settings)
    for row in MOVED:
        given = {old: renamed[old] for old in row.old if old in renamed}
        if not given or set(given) == {row.key}:
            continue
        value = row(given)
        for old in given:
            del renamed[old]
        if value is not None:
            renamed[row.key] = value
    for dropped in DROPPED:
        renamed.pop(dropped.key, None)
    return renamed


def rename_stored(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings of an earlier version, a mapping of sections, with today's keys."""
    moving = {old for row in MOVED for old in row.old} | {row.key for row in DROPPED}
    flat = {key: value for key, value in _walk(stored) if key in moving}
    renamed = {
        section: {name: v for name, v in values.items() if f"{section}.{name}" not in flat}
        if isinstance(values, Mapping)
        else values
        for section, values in stored.items()
        if section not in flat
    }
    for key, value in rename_settings(flat).items():
        section, _, name = key.partition(".")
        if name:
            renamed.setdefault(section, {})[name] = value
        else:
            renamed[section] = value
    return renamed


def _walk(stored: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, values in stored.items():
        if isinstance(values, Mapping):
            yield from ((f"{section}.{name}", value) for name, value in values.items())
        else:
            yield str(section), values


def _key(word: str) -> str:
    return word.lstrip("+").partition("=")[0] if "=" in word else ""


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)


def _is_dropped(word: str) -> bool:
    """Return whether a word gives a dropped key its default. Raises ConfigError for another."""
    row = next((row for row in DROPPED if row.key == _key(word)), None)
    if row is None:
        return False
    value = word.partition("=")[2]
    if value.lower() != str(row.default).lower():
        raise ConfigError(f"{row.key}={value}: this is no setting any more. {row.rule}")
    return True
