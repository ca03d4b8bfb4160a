"""What is checked and said before anything is written."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from automl.admission.limits import AdmissionLimits
from automl.config import (
    AdmissionConfig,
    Config,
    DataConfig,
    DataKind,
    ExecutionConfig,
    ExecutionKind,
    ObjectiveConfig,
    ObjectiveKind,
    StudyConfig,
    Task,
    TrainingConfig,
)
from automl.data.dataset import NetworkOutputs, UserDataFacts
from automl.data.tables.frames import write_frame
from automl.devices.host import n_oom_kills, usable_cores
from automl.errors import ConfigError
from automl.models.families.auto.family import AutoFamily
from automl.models.families.mlp.family import Growth, MLPFamily
from automl.models.families.python.family import PythonFamily
from automl.objectives.function_call import ObjectiveDeclaration
from automl.objectives.training_plan import MemberTraining, RefitTraining, TrainingPlan
from automl.running.opening.machines import worker_limits
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import LOADER_BYTES, PreparedStudy, RefitInputs
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.search_space import parse_space
from automl.trial import LOCAL_HOST, Direction, Params
from tests.places import device_id

GPU = device_id("GPU-a")
AUTO_SPACE = {"mlp_batch_size": "by_rows", "mlp_depth": 2}


def small(space: dict[str, Any]) -> Config:
    """Return a config with 100 training points."""
    return Config(model=MLPFamily(), data=DataConfig(n_train=100), space=space)


def test_a_batch_above_the_training_part_is_said_once() -> None:
    config = Config(
        model=MLPFamily(),
        data=DataConfig(n_train=100),
        space={"batch_size": {"choices": [32, 400, 500]}},
    )
    said = [note for note in prepare_study(config).notes if "clipped" in note]
    assert said == ["batch_size: clipped to the 100 rows of the training part."]


def test_no_batch_that_fits_is_refused() -> None:
    config = small({"batch_size": 500})
    with pytest.raises(ConfigError, match=r"space.batch_size=500: .* only 100 rows"):
        prepare_study(config)


def test_what_was_searched_is_trained_again_on_fewer_rows() -> None:
    big = Config(model=AutoFamily(), data=DataConfig(n_train=1500), space=dict(AUTO_SPACE))
    searched = prepare_study(big)
    wanted: Params = {"family": "mlp", "mlp_batch_size": 128}
    assert searched.space.has(wanted)
    config = replace(big, data=DataConfig(n_train=1000))
    fewer = prepare_study(config).dataset
    assert not prepare_study(config).space.has(wanted), "an epoch of it has less than ten steps"
    plan = RefitTraining(members=(MemberTraining(wanted, 3, 0.0),), member_of_trial=(0,))
    asked = RefitInputs(plan, fewer, n_searched=1500)
    again = prepare_study(replace(config, study=StudyConfig(enqueue=[dict(wanted)])), refit=asked)
    assert again.space.has(wanted)
    alone = replace(small({"batch_size": {"choices": [200, 300]}}))
    dataset = prepare_study(small({"batch_size": 32})).dataset
    assert (
        "clipped to the 100 rows"
        in prepare_study(alone, refit=RefitInputs(plan, dataset)).notes[-1]
    )


def test_a_trial_with_folds_takes_a_lane_for_each() -> None:
    space: dict[str, Any] = {"depth": 2, "width": 64, "batch_size": 32}
    found = {}
    for folds in (1, 5, 9):
        prepared = prepare_study(
            Config(model=MLPFamily(), data=DataConfig(n_train=100, folds=folds), space=space)
        )
        pack = prepared.pack_kind(space, on_host=True)
        found[folds] = None if pack is None else pack.n_lanes
        assert prepared.plan.goal.value_at_end == (folds > 1)
    assert found == {1: 16, 5: 3, 9: None}, "of 16 lanes; a trial by itself has its own pack"


def test_a_trial_with_folds_asks_for_all_its_models() -> None:
    space: dict[str, Any] = {"depth": 2, "width": 64, "batch_size": 32}
    one, five = (
        prepare_study(
            Config(model=MLPFamily(), data=DataConfig(n_train=900, folds=folds), space=space)
        )
        for folds in (1, 5)
    )
    few, many = (
        of.plan.request(space, of.dataset).memory_bytes for of in (five.of_one_model, five)
    )
    assert few is not None
    assert many == 5 * few
    work, works = (of.work(space) for of in (one, five))
    assert work is not None
    assert works is not None
    assert works.n_steps == 5 * 20 * 35, "five folds of 1,120 rows, 20 epochs, batches of 32"


def test_batches_that_fit_are_not_spoken_of() -> None:
    config = Config(
        model=MLPFamily(),
        data=DataConfig(n_train=100),
        space={"batch_size": {"choices": [32, 100]}},
    )
    assert not any("clipped" in note for note in prepare_study(config).notes)


def test_workers_wait_for_verdicts_at_the_rungs_of_the_study() -> None:
    prepared = prepare_study(
        Config(
            model=MLPFamily(),
            pruner=SuccessiveHalving(),
            training=TrainingConfig(epochs=20),
            space={"batch_size": 32},
        )
    )
    judging = pickle.loads(pickle.dumps(worker_limits(prepared, 1).judging))
    assert list(judging.rungs(-1, 19)) == [2, 6]
    assert list(prepared.pruner.rungs(-1, 19)) == [2, 6]


def limits_of(**settings: int) -> AdmissionLimits:
    admission = AdmissionConfig(**settings)  # type: ignore[arg-type]
    execution = ExecutionConfig(threads_per_trial=3)
    config = small({"batch_size": 32})
    return prepare_study(replace(config, admission=admission, execution=execution)).limits


def test_how_many_trials_there_may_be_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automl.running.prepare.prepared_config.usable_cores", lambda: 12)
    limits = limits_of(max_trials_per_device=5)
    assert (limits.at_once([LOCAL_HOST]), limits.at_once([GPU] * 8)) == (4, 40)
    limits = limits_of(max_concurrent_trials=6)
    assert (limits.at_once([LOCAL_HOST]), limits.at_once([GPU] * 8)) == (6, 6)


def test_a_width_with_doubling_layers_is_told_what_to_use() -> None:
    config = Config(model=MLPFamily(growth=Growth.doubling), space={"width": 8})
    with pytest.raises(ConfigError, match="space=doubling"):
        prepare_study(config)


def identities(**parts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A study's identity, and what it is where nobody sets anything."""
    prepared = prepare_study(replace(Config(model=MLPFamily(), space=SPACE), **parts))
    return dict(prepared.identity), dict(prepared.identity_defaults)


SPACE = {"lr": {"low": 0.1, "high": 1.0, "log": True}, "batch_size": {"choices": [8, 16]}}


def test_every_setting_of_an_identity_has_the_default_of_its_class() -> None:
    identity, defaults = identities()
    assert identity["data"].pop("digest")
    assert identity.pop("space")["lr"] == {"low": 0.1, "high": 1.0, "log": True, "step": None}
    assert defaults.pop("space") == {"lr": {"log": False, "step": None}, "batch_size": {}}
    assert defaults == identity


def test_what_was_set_is_no_default() -> None:
    changed = identities(
        model=MLPFamily(growth=Growth.doubling),
        data=DataConfig(kind=DataKind.digits, split_seed=7),
        training=TrainingConfig(epochs=3),
        study=StudyConfig(seed=9),
    )
    assert changed[0] != identities()[0]
    assert changed[1] == identities()[1]


def test_what_a_family_is_called_and_must_be_told_has_no_default() -> None:
    identity, defaults = identities(
        model=PythonFamily(target="tests.models.networks:normed"),
        execution=ExecutionConfig(ExecutionKind.inline),
    )
    assert identity["model"]["kind"] == "python"
    assert defaults["model"] == {"target": None}


def test_a_function_of_ones_own_has_no_model_and_no_data() -> None:
    objective = ObjectiveConfig(ObjectiveKind.python, "tests.end_to_end.objectives:counts")
    inline = ExecutionConfig(ExecutionKind.inline)
    identity, _ = identities(objective=objective, space={"x": 1}, execution=inline)
    assert set(identity) == {"space", "study", "objective"}


def test_workers_deaths_are_held_against_the_kernels_count() -> None:
    config = replace(small({"batch_size": 8}), pruner=SuccessiveHalving())
    assert worker_limits(prepare_study(config), 1).n_oom_kills is n_oom_kills


@pytest.mark.parametrize(
    ("sampler", "lookahead", "n_ahead"),
    [
        (TPE(), "auto", 4),
        (IndependentSampler(), "auto", 16),
        (TPE(), 0, 0),
        (IndependentSampler(), 3, 3),
    ],
)
def test_a_sampler_that_learns_looks_less_far_ahead(
    sampler: Sampler, lookahead: Any, n_ahead: int
) -> None:
    config = replace(
        small({"width": 8}), sampler=sampler, admission=AdmissionConfig(lookahead=lookahead)
    )
    assert prepare_study(config).n_ahead == n_ahead


def test_the_built_in_training_has_one_device() -> None:
    several = AdmissionConfig(devices_per_trial=2)
    with pytest.raises(ConfigError, match=r"devices_per_trial=2: the built-in .*objective=python"):
        prepare_study(replace(small({"lr": 0.1}), admission=several))
    with pytest.raises(ConfigError, match=r"admission.devices_per_trial=0: must be at least 1"):
        AdmissionConfig(devices_per_trial=0)


# --- data of the user's own -----------------------------------------------------------------------


def with_own_data(
    size_bytes: int | None,
    request: str | None = None,
    *,
    takes_integers: bool = False,
    pack: int | str = "auto",
    **training: Any,
) -> PreparedStudy:
    """A study on such data, as it is known once its function was called elsewhere."""
    config = Config(
        study=StudyConfig(n_trials=2),
        model=PythonFamily(target="my_nets:build"),
        data=DataConfig(kind=DataKind.python, source="my_data:parts"),
        admission=AdmissionConfig(request=request),
        training=TrainingConfig(**training),
        execution=ExecutionConfig(pack=pack),
        sampler=IndependentSampler(),
        pruner=SuccessiveHalving(),
    )
    facts = UserDataFacts(
        name="my_data:parts",
        task=Task.classification,
        outputs=NetworkOutputs.SCORES,
        n_train=10,
        n_validation=5,
        n_inputs=64,
        n_outputs=2,
        takes_integers=takes_integers,
        size_bytes=size_bytes,
        digest="0" * 64,
        notes=(),
    )
    plan = TrainingPlan(
        config.objective,
        config.data,
        PythonFamily("my_nets:build"),
        config.training,
        "val_loss",
        Direction.minimize,
    )
    declaration = ObjectiveDeclaration(None, (), facts.metrics)
    return PreparedStudy(config, parse_space({}), plan, None, declaration, (), facts=facts)


def test_processes_that_load_rows_count_as_cores_and_main_memory() -> None:
    loaded = with_own_data(None, loader_workers=usable_cores())
    stays = with_own_data(1000, loader_workers=usable_cores())
    assert (loaded.limits.max_on_host, stays.limits.max_on_host) == (1, usable_cores())
    assert loaded.limits.helpers_bytes == usable_cores() * LOADER_BYTES
    assert stays.limits.helpers_bytes == 0
    too_large = with_own_data(2**30, request="1GiB", loader_workers=1)
    assert too_large.limits.helpers_bytes == LOADER_BYTES


def test_only_rows_that_stay_are_trained_on_together() -> None:
    params = {"lr": 0.1}
    assert with_own_data(None).pack_kind(params, on_host=True) is None
    assert with_own_data(1000).pack_kind(params, on_host=True) is not None
    large = with_own_data(2**30, request="1GiB")
    assert large.pack_kind(params, on_host=False) is None
    assert large.pack_kind(params, on_host=True) is not None


def test_on_a_cpu_tokens_are_trained_on_together_where_that_is_asked_for() -> None:
    params = {"lr": 0.1}
    tokens = with_own_data(1000, takes_integers=True)
    assert tokens.pack_kind(params, on_host=True) is None
    assert tokens.pack_kind(params, on_host=False) is not None
    asked = with_own_data(1000, takes_integers=True, pack=4).pack_kind(params, on_host=True)
    assert asked is not None
    assert asked.n_lanes == 4


def test_how_many_load_rows_may_change_while_a_study_lasts() -> None:
    few, many = (with_own_data(None, loader_workers=n).identity for n in (0, 3))
    assert few == many
    assert few["data"]["digest"] == "0" * 64
    assert few["data"]["source"] == "my_data:parts"


@pytest.fixture
def dated(tmp_path: Path) -> Config:
    """A study of a table with a column of dates, as it was stored before dates were read."""
    lines = [f"{i % 7},{1 + i % 28:02}.05.2024,{'uv'[i % 2]}" for i in range(60)]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["a,joined,y", *lines]) + "\n")
    config = small({"lr": {"low": 0.01, "high": 0.1}})
    return replace(config, data=DataConfig(kind=DataKind.csv, path=str(path), target="y"))


def test_a_study_of_before_keeps_its_columns(dated: Config) -> None:
    prepared = prepare_study(replace(dated, data=replace(dated.data, rules=0)))
    assert prepared.dataset is not None
    assert prepared.dataset.columns.readings == ()
    assert "columns" not in prepared.identity["data"]


@pytest.mark.parametrize("target", ["y", "a"])
def test_a_frame_and_a_file_with_its_rows_judge_by_the_same_rows(
    dated: Config, tmp_path: Path, target: str
) -> None:
    def digest(config: Config, **data: Any) -> str:
        own = replace(config.data, target=target, **data)
        return prepare_study(replace(config, data=own)).judged_rows_digest

    frame = pd.read_csv(tmp_path / "table.csv")
    from_file, written = digest(dated), write_frame(frame, tmp_path)
    assert digest(dated, path=str(written)) == from_file
    assert digest(dated, split_seed=1) != from_file
    assert prepare_study(small({"lr": 0.1})).judged_rows_digest, "of the generated set"


def test_what_columns_are_taken_for_is_part_of_a_study(dated: Config) -> None:
    def stored_columns(**data: Any) -> Any:
        found = prepare_study(replace(dated, data=replace(dated.data, **data))).identity["data"]
        assert not {"rules", "combine"} & found.keys()
        return found["columns"]

    assert stored_columns(rules=1) == {"joined": "date"}
    assert stored_columns(rules=1, columns={"joined": "drop"}) == {"joined": "drop"}
    assert stored_columns(columns={"joined": "date"}) == {"joined": "date"}


def test_combined_columns_are_part_of_a_study(dated: Config) -> None:
    data = replace(dated.data, rules=1, combine=["joined.since - a"])
    found = prepare_study(replace(dated, data=data)).identity["data"]
    assert found["combine"] == ["joined.since - a"]
