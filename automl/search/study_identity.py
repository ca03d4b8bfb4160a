"""What may not change while a study lasts: kept with it, compared when it is opened again.

By what a study asks and judges, and what may not change while it lasts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.storages import BaseStorage
from optuna.study import StudyDirection

from automl.errors import ConfigError
from automl.search.pruners.pruner import Pruner
from automl.search.samplers.sampler import Sampler
from automl.search.search_space import SearchSpace
from automl.trial import Direction, Params, ParamValue

STUDY_ATTRIBUTE = "automl"
"""The study's user attribute that holds its uuid and identity."""
FUNCTION_PARTS_PREFIX = "objective.parts."
"""What a function that was called from Python is made of."""
_ACCEPT = "; or have the function go on as it is now, beside the trials of before, by changed=True"
_OWN = " (or have it go on with its own settings: python -m automl resume)"
"""A default that has changed, or grown, since is taken back so."""
_DIRECTIONS = {
    Direction.minimize: StudyDirection.MINIMIZE,
    Direction.maximize: StudyDirection.MAXIMIZE,
}


@dataclass(frozen=True)
class StudyIdentity:
    """Nested JSON values."""

    now: Mapping[str, Any]
    defaults: Mapping[str, Any]
    """What `now` says of settings that nobody sets: a study that was begun before there was such a
    setting has the default."""
    may_change: str | None = None
    """What begins so may be another, this once; None: nothing."""


def find_or_create_study(
    storage: BaseStorage, name: str, direction: Direction, identity: StudyIdentity, where: str
) -> tuple[int, str]:
    """The Optuna id and the uuid of study `name`, which is created when it does not exist.

    `name` is the storage's, which a renamed study keeps there.

    Raises ConfigError, before anything is written, when it is not the study that was meant.
    """
    if name not in {study.study_name for study in storage.get_all_studies()}:
        storage.create_new_study([_DIRECTIONS[direction]], name)
    study_id = storage.get_study_id_from_name(name)
    if (kept := storage.get_study_user_attrs(study_id).get(STUDY_ATTRIBUTE)) is not None:
        refuse_identity_changes(name, kept["identity"], identity)
        if identity.may_change is not None:
            now = {**kept, "identity": _as_stored(identity.now)}
            storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, now)
        return study_id, kept["uuid"]
    if storage.get_all_trials(study_id, deepcopy=False):
        raise ConfigError(
            f"study.name={name}: {where} holds a study of this name that automl did not make; "
            "choose another study.name."
        )
    # Reached too when a kill came between the creation of a study and its attribute.
    study_uuid = uuid.uuid4().hex
    now = {"uuid": study_uuid, "identity": _as_stored(identity.now)}
    storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, now)
    return study_id, study_uuid


def create_study(
    storage: BaseStorage, name: str, direction: Direction, kept: Mapping[str, Any]
) -> None:
    """A study that is known from elsewhere: `kept` is its uuid and its identity."""
    study_id = storage.create_new_study([_DIRECTIONS[direction]], name)
    storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, dict(kept))


def stored_study_name(storage: BaseStorage, name: str, where: str) -> str:
    """What a journal calls the study of its folder, which may have been renamed since.

    Raises ConfigError when it holds several, none of that name.
    """
    names = {study.study_name for study in storage.get_all_studies()}
    if name in names or not names:
        return name
    if len(names) > 1:
        raise ConfigError(
            f"study.name={name}: {where} holds {len(names)} studies ({', '.join(sorted(names))}); "
            "give the folder the name of the one that is meant."
        )
    return names.pop()


def refuse_lost_study(storage: BaseStorage, name: str, where: str) -> None:
    """Raises ConfigError when a database lacks the study whose trials the folder has."""
    if name not in {study.study_name for study in storage.get_all_studies()}:
        raise ConfigError(
            f"study.name={name}: {where} holds no study of this name, but its folder holds trials "
            "of one. If the folder was renamed or copied, give it its name back; else name the "
            "study.storage that it was begun with."
        )


def store_study_uuid(storage: BaseStorage, study_id: int, study_uuid: str) -> None:
    """From now on that is its uuid: a copy becomes a study of its own."""
    kept = storage.get_study_user_attrs(study_id)[STUDY_ATTRIBUTE]
    storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, {**kept, "uuid": study_uuid})


def refuse_identity_changes(name: str, kept: Mapping[str, Any], identity: StudyIdentity) -> None:
    before, after = dict(_flat("", kept)), dict(_flat("", _as_stored(identity.now)))
    defaults = dict(_flat("", _as_stored(identity.defaults)))
    differ = [
        key
        for key in [*before, *(key for key in after if key not in before)]
        if before.get(key, defaults.get(key)) != after.get(key)
        and (identity.may_change is None or not key.startswith(identity.may_change))
    ]
    lines = [
        f"  {key}: {before.get(key, 'not set')} in the study, {after.get(key, 'not set')} now"
        for key in differ
    ]
    if lines:
        accept = "" if not all(key.startswith(FUNCTION_PARTS_PREFIX) for key in differ) else _ACCEPT
        own = _OWN if _may_be_defaults(differ, before) else ""
        raise ConfigError(
            f"study.name={name} was begun with other settings, so its trials could not be compared "
            "with new ones:\n"
            + "\n".join(lines)
            + f"\nTake the changes back to go on with it{own}, or "
            f"choose another study.name{accept}."
        )


def _may_be_defaults(differ: Sequence[str], before: Container[str]) -> bool:
    """Whether the study may have been begun by the same words, when they meant something else."""
    grown = any(key.startswith(("space.", "data.columns.")) and key not in before for key in differ)
    of_model = any(key.startswith("model.") for key in differ)
    return grown or of_model or all(key.startswith("space.") for key in differ)


def _as_stored(values: Mapping[str, Any]) -> Any:
    """As the storage gives them back."""
    return json.loads(json.dumps(values))


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """`{"space": {"lr": {"low": 0.1}}}` → `("space.lr.low", "0.1")`; values as JSON text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, json.dumps(value)


@dataclass(frozen=True)
class StudyRules:
    """Of one study, as its config has them."""

    space: SearchSpace
    sampler: Sampler
    pruner: Pruner
    identity: StudyIdentity
    asks_for_params: bool = False
    """Whether trials may have other params than those of the space: the objective asks for them."""
    choice: str | None = None
    """The param that says what kind a trial is of: each is judged among its own."""
    pruners: Mapping[ParamValue, Pruner] = field(default_factory=dict)
    """By which each kind is judged; those that are not here by `pruner`."""
    portfolio: Sequence[Params] = ()
    """Tried after what is enqueued, as far as the space has it."""
