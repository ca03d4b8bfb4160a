"""Checks an edit of a study and computes the study that it makes.

An edit changes how further trials are asked for: the space, the sampler, the pruner, the totals. It
is recorded as an event, and the settings of a study are those that its last sweep stored with the
edits since. What the values of trials mean cannot be edited.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from automl.config import Config, ObjectiveKind
from automl.config.range_text import entry_text
from automl.errors import ConfigError
from automl.record.study_directory import copying_command, study_command
from automl.record.study_record import last_standing_edit
from automl.record.study_requests import StudyRequest
from automl.running.prepare.identity_settings import option_name, to_plain_values
from automl.running.prepare.preparation import prepare_edited
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.pruners import pruners
from automl.search.samplers import samplers
from automl.search.samplers.sampler import SamplerInputs
from automl.search.search_space import parse_space
from automl.trial import StudyEdited

ENDS = ("n_trials", "timeout_seconds", "stop_value")
"""The settings of `study.` that can be edited: those that say when a sweep ends."""
_MEANING = (
    "data.",
    "model",
    "objective.",
    "training.",
    "study.metric",
    "study.direction",
    "study.constraints",
)
"""Beginnings of the settings that say what the values of trials mean."""
_OPTIONS = {"sampler": samplers, "pruner": pruners}


@dataclass(frozen=True)
class SettingsChange:
    """The settings that an edit changes, as plain values by key."""

    before: Mapping[str, Any]
    """The values before; a setting that was not there is missing."""
    after: Mapping[str, Any]
    """The values after; a setting that is taken out is missing."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values that earlier trials had of params that are added, by key."""

    def __post_init__(self) -> None:
        """Raise TypeError for values of a request that no command writes."""
        if not all(isinstance(part, dict) for part in (self.before, self.after, self.defaults)):
            raise TypeError(f"{self!r:.100} changes no settings")

    @classmethod
    def between(cls, before: Config, after: Config) -> SettingsChange:
        """Return what a composed config changes. Raises ConfigError for what no edit changes."""
        space, defaults = _split_defaults(after.space)
        after = replace(after, space=space)
        _refuse_other_changes(before, after)
        old, new = editable_settings(before), editable_settings(after)
        keys = [
            k
            for k in dict.fromkeys((*old, *new))
            if k not in old or k not in new or old[k] != new[k]
        ]
        changed_defaults = {key: value for key, value in defaults.items() if key in keys}
        return cls(
            {key: old[key] for key in keys if key in old},
            {key: new[key] for key in keys if key in new},
            changed_defaults,
        )

    @property
    def reversed(self) -> SettingsChange:
        return SettingsChange(self.after, self.before)

    def applied_to(self, config: Config) -> Config:
        """Return the config with the change. Raises ConfigError where a setting is no longer as it
        was when the change was made."""
        now = editable_settings(config)
        for key in (*self.before, *self.after):
            if now.get(key, _ABSENT) != self.before.get(key, _ABSENT):
                current = entry_text(now[key]) if key in now else "not there"
                raise ConfigError(
                    f"{key} is {current} now: another edit changed it since this one was composed. "
                    f"Look at it ({study_command('status', config.study)}), then edit again."
                )
        return self.made_in(config)

    def made_in(self, config: Config) -> Config:
        """Return the config with the change, whatever its settings were before."""
        space = {n: e for n, e in config.space.items() if self._keeps(f"space.{n}")}
        changed = dict[str, Any]()
        study = dict[str, Any]()
        for key, value in self.after.items():
            group, _, name = key.partition(".")
            if group == "space":
                space[name] = value
            elif group == "study":
                study[name] = value
            else:
                values = dict(value)
                changed[group] = _OPTIONS[group]()[values.pop("name")](**values)
        return replace(config, space=space, study=replace(config.study, **study), **changed)

    def _keeps(self, key: str) -> bool:
        return key not in self.before or key in self.after


_ABSENT = object()


def editable_settings(config: Config) -> dict[str, Any]:
    """Return the settings that can be edited, as plain values by key."""
    settings: dict[str, Any] = {f"space.{name}": entry for name, entry in config.space.items()}
    for group in _OPTIONS:
        option = getattr(config, group)
        settings[group] = {"name": option_name(option), **to_plain_values(option)}
    return settings | {f"study.{name}": getattr(config.study, name) for name in ENDS}


def edit_study(
    prepared: PreparedStudy, edits: Sequence[StudyEdited], request: StudyRequest, n_trials: int
) -> tuple[PreparedStudy, StudyEdited]:
    """Return the study after the edit that is asked for, and the event that records it.

    `edits` are those so far, `n_trials` is the number of trials that were asked for. Raises
    ConfigError for an edit that cannot be made.
    """
    undone = None
    if request.arguments.get("undo"):
        undone = last_standing_edit(edits)
        if undone is None:
            raise ConfigError("undo=true: there is no edit to take back.")
        change = _change_of(undone).reversed
    else:
        change = SettingsChange(**request.arguments)
    edited = change.applied_to(prepared.config)
    _refuse_unfit_study(prepared, change, edited, n_trials)
    after = prepare_edited(prepared, edited)
    if edited.study.shared:
        refuse_unshareable_study(after)
    if not after.asks_for_params:
        after.sampler.open(SamplerInputs(after.space, edited.study.seed, (), _open_no_study))
    event = StudyEdited(
        time.time(),
        request.id,
        request.user,
        n_trials,
        before=_as_json(change.before),
        after=_as_json(change.after),
        defaults=_as_json(change.defaults),
        undoes="" if undone is None else undone.id,
    )
    if after.space.plain() != prepared.space.plain():
        spaces = (json.dumps(space.plain()) for space in (prepared.space, after.space))
        event = replace(event, space_before=next(spaces), space=next(spaces))
    return replace(after, edits=(*edits, event)), event


def follow_edit(prepared: PreparedStudy, edit: StudyEdited) -> PreparedStudy:
    """Return the study after an edit that another sweep or a command has recorded.

    Settings that only this sweep had are changed, too. Raises ConfigError for a study that this
    sweep cannot go on with.
    """
    edited = _change_of(edit).made_in(prepared.config)
    try:
        return replace(prepare_edited(prepared, edited), edits=(*prepared.edits, edit))
    except ConfigError as error:
        raise ConfigError(
            f"study.name={edited.study.name}: {edit.user} edited it, and this sweep cannot follow: "
            f"{error}"
        ) from error


def _open_no_study(sampler: object) -> NoReturn:
    raise AssertionError("a sampler opens its study when it is asked for a trial")


def _change_of(edit: StudyEdited) -> SettingsChange:
    return SettingsChange(
        *({k: json.loads(v) for k, v in m.items()} for m in (edit.before, edit.after))
    )


def _as_json(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value) for key, value in values.items()}


def _split_defaults(space: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the space without the `default` of its entries, and these defaults by key."""
    entries, defaults = dict(space), dict[str, Any]()
    for name, entry in space.items():
        if isinstance(entry, dict) and "default" in entry:
            entries[name] = {key: value for key, value in entry.items() if key != "default"}
            defaults[f"space.{name}"] = entry["default"]
    return entries, defaults


def _refuse_unfit_study(
    prepared: PreparedStudy, change: SettingsChange, edited: Config, n_trials: int
) -> None:
    """Raise ConfigError for a change that this kind of study cannot take, or that lacks the value
    which earlier trials had."""
    changes_space = any(key.startswith("space.") for key in (*change.before, *change.after))
    if changes_space and prepared.asks_for_params:
        raise ConfigError(
            "objective=optuna: the objective itself says which params it has, so its space cannot "
            "be edited. Change the objective, and begin a new study.name with it."
        )
    if not edited.space and not prepared.asks_for_params:
        raise ConfigError("edit: the space would be empty; leave at least one param in it.")
    space = parse_space(edited.space)
    known = {name for _, earlier in prepared.rules.history.earlier for name in earlier.names}
    for key in change.after.keys() - change.before.keys():
        param = space[key.removeprefix("space.")]
        if key in change.defaults and not param.domain.contains(change.defaults[key]):
            raise ConfigError(f"{key}.default={change.defaults[key]}: must be {param.domain}.")
        is_new = param.is_searched and param.name not in known
        if n_trials and is_new and key not in change.defaults:
            raise ConfigError(
                f"{key} is new, and the study has {n_trials} trials: say which value they had, "
                f"{key}.default=…"
            )
    for number, params in enumerate(edited.study.enqueue[n_trials:], n_trials):
        has_others = prepared.asks_for_params
        space.check(params, f"study.enqueue[{number}]", may_have_others=has_others)
    _refuse_fixed_choices(prepared, change)


def _refuse_fixed_choices(prepared: PreparedStudy, change: SettingsChange) -> None:
    """Raise ConfigError where the storage holds the choices of a param for good."""
    study = prepared.config.study
    if study.storage is None or study.shared:
        return
    for key in change.before.keys() & change.after.keys():
        old, new = change.before[key], change.after[key]
        choices = [isinstance(entry, dict) and "choices" in entry for entry in (old, new)]
        if key.startswith("space.") and any(choices):
            raise ConfigError(
                f"{key}: Optuna's own tables (study.storage) hold the choices of a param for good. "
                "Fix it or change a range instead, or keep the next study in its folder, without "
                "study.storage."
            )


def refuse_uneditable_study(config: Config) -> None:
    """Raise ConfigError for a study whose settings no edit can change."""
    study = config.study
    if config.refit is not None:
        raise ConfigError(
            f"study.name={study.name}: a refit is no search; there is no space to edit."
        )
    if config.objective.kind is ObjectiveKind.called:
        raise ConfigError(
            f"study.name={study.name}: it is called from Python, and the call gives its settings: "
            "change n_trials there; for another space call it with a new name."
        )


def refuse_unshareable_study(prepared: PreparedStudy) -> None:
    """Raise ConfigError for features that only a single sweep supports."""
    if prepared.asks_for_params:
        raise ConfigError(
            "objective=optuna: params that an objective asks for while it runs are not shared "
            "between sweeps. Write them as the space (space.NAME=…), or leave study.storage out; "
            "postgresql+psycopg2://… keeps the study in Optuna's own tables, for one sweep."
        )
    if prepared.config.study.keep_best is not None:
        raise ConfigError(
            f"study.keep_best={prepared.config.study.keep_best}: sweeps of a shared study "
            "have their files on several machines, and none removes those of others: leave it out."
        )
    if prepared.pruner.pauses:
        raise ConfigError(
            f"pruner={option_name(prepared.pruner)}: sweeps of a shared study do not promote the "
            "trials that others have paused. Take pruner=halving, or leave study.storage out."
        )
    if prepared.called is not None and prepared.called.changed:
        raise ConfigError(
            "changed=True: a function that goes on as it is now would be another on each machine "
            "of a shared study. Begin a new study.name with it."
        )


def _refuse_other_changes(before: Config, after: Config) -> None:
    """Raise ConfigError if settings differ that no edit changes."""
    for key in _other_changes(before, after):
        word = f"{key}={_flat(after)[key]}"
        if key.startswith(_MEANING):
            raise ConfigError(
                f"{word}: it says what the values of trials mean, so that earlier ones would not "
                f"compare with later ones. Begin a study like this one with it: "
                f"{copying_command(before.study, '…')} {key}=…"
            )
        raise ConfigError(
            f"{word}: an edit changes the space, study.n_trials, study.timeout_seconds, "
            "study.stop_value, sampler and pruner. Settings of a sweep change when it goes on: "
            f"{study_command('resume', before.study)} {key}=…"
        )


def _other_changes(before: Config, after: Config) -> list[str]:
    old, new = _flat(before), _flat(after)
    keys = dict.fromkeys((*old, *new))
    return [key for key in keys if old.get(key) != new.get(key) and not _is_ignored(key)]


def _is_ignored(key: str) -> bool:
    group, _, name = key.partition(".")
    own = {"dir", "name", "copy", "relative_to", "n_edits", *ENDS}
    return group in ("space", *_OPTIONS) or (group == "study" and name in own)


def _flat(config: Config) -> dict[str, Any]:
    """Return the settings by dotted key; an option counts by its class, too."""
    flat: dict[str, Any] = {"model": type(config.model).__name__}
    for group, values in to_plain_values(config).items():
        if isinstance(values, dict):
            flat |= {f"{group}.{name}": value for name, value in values.items()}
    return flat
