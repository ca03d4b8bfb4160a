"""The one table of keys that were renamed, merged with another key, or dropped.

Stored files, stored identities and events of earlier versions are read by it silently and for ever.
Words of a command line are changed by it with one line of advice. Nothing else knows an old key. A
key that is renamed or dropped gets a row in `MOVED` or `DROPPED`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automl.config.checks import is_none
from automl.config.data import DataRule
from automl.errors import ConfigError


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


def _devices(only: Any, group: Any, kind: Any, choose: Any) -> Any:
    """Return the way to find devices, the choice among them, and the GPUs that are named."""
    if (group, kind, choose) == (None, None, None):
        return only
    found = str(kind if group is None else group)
    found = {"host": "cpu", "auto": "", "None": ""}.get(found, found)
    if found == "cpu":
        return "cpu"
    chosen = None if choose is None or str(choose) == "auto" else str(choose)
    names = str([] if only is None else only).strip("[] ").replace("'", "").replace('"', "")
    named = [name for text in names.split(",") if (name := text.strip()) and name != "auto"]
    words = [word for word in (found, chosen, *named) if word]
    return words[0] if len(words) == 1 else words or "auto"


def _execution(kind: Any) -> Any:
    """Return the option or kind of today; `auto` was the workers."""
    return "workers" if kind == "auto" else kind


def _is_off(value: Any) -> bool:
    """Return whether a value is given and is `none`."""
    return value is not None and is_none(value)


MOVED: Sequence[MovedKey] = (
    MovedKey(
        "study.finish", ("study.finish", "study.ensemble", "study.refit", "study.plots"), _finish
    ),
    MovedKey("data.test", ("data.test", "data.test_path", "data.test_fraction"), _test),
    MovedKey(
        "devices.only", ("devices.only", "devices", "devices.kind", "devices.choose"), _devices
    ),
    MovedKey("execution", ("execution",), _execution),
    MovedKey("execution.kind", ("execution.kind",), _execution),
    MovedKey("tracking.uri", ("tracking.uri", "tracking.store"), _uri),
    MovedKey("training.loss", ("training.loss", "training.quantile"), _loss),
    MovedKey("study.keep_best", ("tracking.keep_best",)),
    MovedKey("study.checkpoint_copies", ("study.checkpoints",)),
)
_BY_RULES = "Tables are read by the rules of this version; data.columns.NAME=KIND says otherwise."

DROPPED: Sequence[DroppedKey] = (
    *(
        DroppedKey(f"data.{rule.name}", True, _BY_RULES)
        for rule in DataRule
        if rule is not DataRule.combine
        and rule <= DataRule.combine_target  # keys of their own once
    ),
    DroppedKey("devices.interval_seconds", 0.5, "Devices are read each half second."),
    DroppedKey("admission.stale_seconds", 5.0, "A reading of devices counts for 5 s."),
    DroppedKey("execution.recycle_growth", "2GiB", "A worker that has grown by 2 GiB is replaced."),
)


def _which_models(model: object, trials: object) -> str | None:
    """Return the text of `which=` for the kind of model and the trials that two keys gave."""
    numbers = "" if is_none(trials) else str(trials).strip("[]").replace(" ", "")
    kind = None if is_none(model) or model == "auto" else str(model)
    if kind == "trial":
        return numbers or "best"
    return ",".join(filter(None, (kind, numbers))) or None


def _which_winner(trial: object, members: object) -> str | None:
    """Return the text of `which=` for the trial that `refit` repeats, or for no ensemble."""
    if not is_none(trial):
        return str(trial)
    return "best" if members is not None and is_none(members) else None


ARGUMENTS: Sequence[MovedKey] = (
    MovedKey("copy", ("study.copy",)),
    MovedKey("name", ("study.new_name",)),
    MovedKey("to", ("data.split_to",)),
    MovedKey("which", ("refit.trial", "refit.members"), _which_winner),
    MovedKey("rows", ("refit.rows",)),
    MovedKey("hold_out", ("refit.hold_out",)),
    MovedKey("seeds", ("refit.n_seeds",)),
    MovedKey("batch_size", ("refit.batch_size",)),
    MovedKey("check", ("refit.check",)),
    MovedKey("parallel", ("refit.parallel",)),
    MovedKey("which", ("evaluate.model", "evaluate.trials"), _which_models),
    MovedKey("seeds", ("evaluate.repeats",)),
    MovedKey("which", ("export.model", "export.trial"), _which_models),
    MovedKey("format", ("export.format",)),
    MovedKey("tune", ("export.tune",)),
    MovedKey("tolerance", ("export.tolerance",)),
    MovedKey("to", ("export.to",)),
    MovedKey("which", ("predict.model", "predict.trial"), _which_models),
    MovedKey("table", ("predict.input",)),
    MovedKey("to", ("predict.output",)),
    MovedKey("members", ("predict.members",)),
    MovedKey("keep", ("predict.keep",)),
    MovedKey("which", ("register.model", "register.trial"), _which_models),
    MovedKey("as", ("register.name",)),
    MovedKey("trial", ("status.trial",)),
    MovedKey("studies", ("compare.studies",)),
    MovedKey("format", ("trials.format",)),
    MovedKey("to", ("trials.output",)),
    MovedKey("params", ("enqueue.params",)),
    MovedKey("from", ("enqueue.file",)),
    MovedKey("outside", ("enqueue.outside",)),
    MovedKey("trial", ("stop.trial",)),
    MovedKey("as", ("stop.outcome",)),
    MovedKey("n", ("ask.n",)),
    MovedKey("lease", ("ask.lease_seconds",)),
    *(
        MovedKey(name, (f"tell.{name}",))
        for name in ("trial", "value", "step", "steps", "metrics", "state", "reason")
    ),
    MovedKey("yes", ("delete.yes",)),
    MovedKey("to", ("archive.output",)),
    MovedKey("file", ("restore.input",)),
    MovedKey("port", ("ui.port",)),
)
"""Keys that are arguments of commands now. Those of a line are taken, those of a stored file are
left out."""
DROPPED_ARGUMENTS: Sequence[DroppedKey] = (
    DroppedKey("evaluate.n_resamples", 1000, "Intervals are of 1000 bootstrap samples."),
    DroppedKey("refit.average", True, "training.ema_decay says how weights are averaged."),
    DroppedKey("refit.devices", "all", "A refit takes the devices that devices.only names."),
    DroppedKey("predict.device", "auto", "devices.only=cpu has predict compute on the CPU."),
)
"""Arguments of commands that have gone."""
_SECTIONS = {
    *("evaluate", "refit", "ui", "export", "predict", "register", "status", "compare", "trials"),
    *("enqueue", "stop", "ask", "tell", "delete", "archive", "restore"),
}
"""Sections that held arguments of commands, and nothing else."""
_NO_SETTINGS = {
    *("which", "warm", "watch", "undo", "refit.of"),
    *(old for row in ARGUMENTS for old in row.old),
    *(row.key for row in DROPPED_ARGUMENTS),
}


def rename_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command line with today's keys, and a line of advice for each change.

    Raises ConfigError for a dropped key with another value than its default.
    """
    renamed, advice = list(words), []
    for row in (*MOVED, *ARGUMENTS):
        old_words = [word for word in renamed if _key(word) in row.old]
        given = {_key(word): word.partition("=")[2] for word in old_words}
        if not given or (set(given) == {row.key} and row.value is None):
            continue
        value = row(given)
        if given == {row.key: value}:
            continue
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
        if not given:
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
    renamed = _without(stored, flat)
    for key, value in rename_settings(flat).items():
        section, _, name = key.partition(".")
        if name:
            renamed.setdefault(section, {})[name] = value
        else:
            renamed[section] = value
    return renamed


def drop_arguments(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored config of a study without what is an argument of a command now."""
    kept = _without(stored, _NO_SETTINGS)
    return {section: v for section, v in kept.items() if v or section not in _SECTIONS}


def _without(stored: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the sections without these keys."""
    return {
        section: {name: v for name, v in values.items() if f"{section}.{name}" not in keys}
        if isinstance(values, Mapping)
        else values
        for section, values in stored.items()
        if section not in keys
    }


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
    rows = (*DROPPED, *DROPPED_ARGUMENTS)
    row = next((row for row in rows if row.key == _key(word)), None)
    if row is None:
        return False
    value = word.partition("=")[2]
    if value.lower() != str(row.default).lower():
        raise ConfigError(f"{row.key}={value}: this is no setting any more. {row.rule}")
    return True
