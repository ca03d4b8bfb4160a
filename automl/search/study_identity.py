"""The identity of a study: settings that may not change while it lasts.

The identity is stored with the study and compared when the study is opened again. `StudyRules`
bundles it with the space, sampler and pruners. `study.py` uses both to open a study.
"""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage
from optuna.study import StudyDirection

from automl.config import StudyConfig
from automl.config.renamed import rename_stored
from automl.errors import ConfigError
from automl.record.study_files import StudyFiles
from automl.record.texts import parse_json
from automl.search.earlier_trials import EarlierTrials
from automl.search.edited_space import SpaceHistory
from automl.search.optuna_source import OptunaStudy
from automl.search.optuna_trials import optuna_distributions
from automl.search.param_suggestions import params_within_space
from automl.search.pruners.pruner import Pruner
from automl.search.samplers.by_optuna import ParamsProposer
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import OpenStudy, Sampler, SamplerInputs
from automl.search.search_space import SearchSpace
from automl.trial import Direction, Params, ParamValue, StudyEdited, StudyMetrics

STUDY_ATTRIBUTE = "automl"
"""The study's user attribute that holds its uuid and identity."""
FUNCTION_PARTS_PREFIX = "objective.parts."
"""Prefix of the identity keys that describe the parts of a function called from Python."""
_ACCEPT_HINT = (
    "; or have the function go on as it is now, beside the trials of before, by changed=True"
)
_RESUME_HINT = " (or have it go on with its own settings: python -m automl resume)"
"""Remedy where a default has changed or grown since the study was begun."""
_DIRECTIONS = {
    Direction.minimize: StudyDirection.MINIMIZE,
    Direction.maximize: StudyDirection.MAXIMIZE,
}


def _directions(metrics: StudyMetrics) -> list[StudyDirection]:
    return [_DIRECTIONS[metric.direction] for metric in metrics.metrics]


@dataclass(frozen=True)
class StudyIdentity:
    """The settings that must stay the same, as nested JSON values."""

    now: Mapping[str, Any]
    defaults: Mapping[str, Any]
    """The entries that `now` has for settings left at their default: a study that is older than a
    setting has its default."""
    may_change: str | None = None
    """Keys with this prefix may change this once; None: nothing may change."""
    edited_space: Mapping[str, Any] | None = None
    """The space since the last edit of it, in place of the stored one; None: it was not edited."""

    def edited(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the stored identity of a study as the edits since have made it."""
        return stored if self.edited_space is None else {**stored, "space": self.edited_space}


def find_or_create_study(
    storage: BaseStorage, name: str, metrics: StudyMetrics, identity: StudyIdentity, where: str
) -> tuple[int, str]:
    """Return the Optuna id and the uuid of study `name`; create it if it does not exist.

    `name` is the name in the storage, which a renamed study keeps there. Raises ConfigError, before
    anything is written, when the study has another identity or was not made by automl.
    """
    if name not in {study.study_name for study in storage.get_all_studies()}:
        storage.create_new_study(_directions(metrics), name)
    study_id = storage.get_study_id_from_name(name)
    if (attribute := storage.get_study_user_attrs(study_id).get(STUDY_ATTRIBUTE)) is not None:
        stored = identity.edited(rename_stored(attribute["identity"]))
        refuse_identity_changes(name, stored, identity)
        if identity.may_change is not None or stored != attribute["identity"]:
            attribute = {**attribute, "identity": _as_stored(identity.now)}
            storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, attribute)
        return study_id, attribute["uuid"]
    if storage.get_all_trials(study_id, deepcopy=False):
        raise ConfigError(
            f"study.name={name}: {where} holds a study of this name that automl did not make; "
            "choose another study.name."
        )
    # Also reached if a kill came between the creation of a study and its attribute.
    study_uuid = uuid.uuid4().hex
    attribute = {"uuid": study_uuid, "identity": _as_stored(identity.now)}
    storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, attribute)
    return study_id, study_uuid


def read_stored_identity(study: Path) -> Mapping[str, Any]:
    """Return the identity in a study's journal, without its lock; empty: it is in no journal."""
    found: Mapping[str, Any] = {}
    with (
        suppress(OSError, ValueError, KeyError, TypeError),
        open(StudyFiles(study).journal, "rb") as journal,
    ):
        for line in journal:
            if b'"user_attr"' in line and f'"{STUDY_ATTRIBUTE}"'.encode() in line:
                found = parse_json(line)["user_attr"][STUDY_ATTRIBUTE]["identity"]
    return rename_stored(found)


def create_study(
    storage: BaseStorage, name: str, metrics: StudyMetrics, attribute: Mapping[str, Any]
) -> None:
    """Create a study with `attribute`, which holds its uuid and its identity."""
    study_id = storage.create_new_study(_directions(metrics), name)
    storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, dict(attribute))


def stored_study_name(storage: BaseStorage, name: str, where: str) -> str:
    """Return the name that a journal has for its study; the folder may have been renamed since.

    Raises ConfigError when it holds several studies and none of the name `name`.
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
    """Raise ConfigError when a database lacks the study whose trials the folder has."""
    if name not in {study.study_name for study in storage.get_all_studies()}:
        raise ConfigError(
            f"study.name={name}: {where} holds no study of this name, but its folder holds trials "
            "of one. If the folder was renamed or copied, give it its name back; else name the "
            "study.storage that it was begun with."
        )


def store_study_uuid(storage: BaseStorage, study_id: int, study_uuid: str) -> None:
    """Store a new uuid for the study: a copy becomes a study of its own."""
    attribute = storage.get_study_user_attrs(study_id)[STUDY_ATTRIBUTE]
    storage.set_study_user_attr(study_id, STUDY_ATTRIBUTE, {**attribute, "uuid": study_uuid})


def refuse_identity_changes(name: str, stored: Mapping[str, Any], identity: StudyIdentity) -> None:
    """Raise ConfigError, with a line per setting, if `identity` differs from the stored one."""
    before, after = dict(_flat("", stored)), dict(_flat("", _as_stored(identity.now)))
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
        parts_only = all(key.startswith(FUNCTION_PARTS_PREFIX) for key in differ)
        accept_hint = _ACCEPT_HINT if parts_only else ""
        resume_hint = _RESUME_HINT if _may_be_defaults(differ, before) else ""
        edit_hint = _edit_hint(name, differ, after)
        raise ConfigError(
            f"study.name={name} was begun with other settings, so its trials could not be compared "
            "with new ones:\n"
            + "\n".join(lines)
            + f"\nTake the changes back to go on with it{resume_hint}, {edit_hint}or "
            f"choose another study.name{accept_hint}."
        )


def _edit_hint(name: str, differ: Sequence[str], after: Mapping[str, str]) -> str:
    """Return how the study gets another space, if nothing else differs."""
    if not all(key.startswith("space.") for key in differ):
        return ""
    kept = {key.split(".")[1] for key in after if key.startswith("space.")}
    words = [
        f"{key}={after[key]}" if key in after else f"~space.{param}"
        for key in differ
        if key in after or (param := key.split(".")[1]) not in kept
    ]
    changes = " ".join(map(shlex.quote, dict.fromkeys(words)))
    command = f"python -m automl edit {name} {changes}"
    return f"or change the space for all further trials: {command}, "


def _may_be_defaults(differ: Sequence[str], before: Container[str]) -> bool:
    """Return whether the user may have given the same command, with other defaults then."""
    has_grown = any(
        key.startswith(("space.", "data.columns.")) and key not in before for key in differ
    )
    of_model = any(key.startswith("model.") for key in differ)
    return has_grown or of_model or all(key.startswith("space.") for key in differ)


def _as_stored(values: Mapping[str, Any]) -> Any:
    """Return the values as the storage gives them back, after JSON."""
    return parse_json(json.dumps(values))


def _flat(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield flat keys with values as JSON: `{"space": {"lr": 1}}` → `("space.lr", "1")`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, json.dumps(value)


@dataclass(frozen=True)
class StudyRules:
    """How a study asks for trials and judges them, read from its config."""

    space: SearchSpace
    sampler: Sampler
    pruner: Pruner
    identity: StudyIdentity
    asks_for_params: bool = False
    """The objective asks for params, so trials may have params that the space lacks."""
    choice: str | None = None
    """The param that tells the kind of a trial; a trial is judged among trials of its kind."""
    slow_kinds: Collection[str] = frozenset()
    """Kinds for which this sweep has too little time; the sampler proposes none of them."""
    pruners: Mapping[ParamValue, Pruner] = field(default_factory=dict)
    """The pruner of each kind of trials; kinds that are missing here have `pruner`."""
    portfolio: Sequence[Params] = ()
    """Params that are tried after the enqueued ones, if the space has them."""
    read_earlier: Callable[[], EarlierTrials] = EarlierTrials
    """Returns what the study takes from earlier ones; called once, when it begins."""
    edits: Sequence[StudyEdited] = ()
    """The edits of the study so far."""
    read_imported: Callable[[], OptunaStudy] | None = None
    """Returns the study of Optuna's with whose trials the study begins; None: it begins without."""

    @property
    def history(self) -> SpaceHistory:
        """The spaces that the study has had."""
        return SpaceHistory.from_edits(self.space, self.edits)

    def first_points(self, space: SearchSpace, config: StudyConfig) -> list[Params]:
        """Return some or all params of each trial that comes before what the sampler proposes."""
        asks = self.asks_for_params
        portfolio = (params for params in self.portfolio if asks or space.has(params))
        return [*config.enqueue, *space.likely_points, *portfolio]

    def proposer(
        self,
        space: SearchSpace,
        config: StudyConfig,
        earlier: Sequence[Params],
        open_study: OpenStudy,
    ) -> ParamsProposer:
        """Return what proposes trials of `space`, the enqueued ones first. Raises ConfigError.

        `earlier` are the params of trials that were asked for in an earlier space.
        """
        asks, enqueued = self.asks_for_params, self.first_points(space, config)
        possible = [params_within_space(space, params) for params in enqueued]
        is_empty = asks and not optuna_distributions(space)
        sampler = IndependentSampler() if is_empty else self.sampler
        inputs = SamplerInputs(
            space, config.seed, possible, open_study, self.choice, earlier, self.slow_kinds
        )
        return ParamsProposer(sampler, inputs, enqueued if asks else ())
