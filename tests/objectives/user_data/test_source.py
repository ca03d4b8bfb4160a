"""What a source may give, what is known of it, and what is said where it will not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from automl.config import DataConfig, DataKind, Task, TrainingConfig
from automl.data.dataset import NetworkOutputs, UserDataFacts
from automl.errors import ConfigError
from automl.models.families.python.family import PythonFamily
from automl.models.family import Family
from automl.objectives.training_plan import SessionSetup
from automl.objectives.user_data.source import describe_data, open_data
from tests.models.conftest import make_plan

HERE = "tests.objectives.user_data.sources"


def make_setup(
    source: str, network: str = "convolutions", task: Task = Task.auto, **settings: Any
) -> SessionSetup:
    family: Family = PythonFamily(target=f"{HERE}:{network}")
    training = TrainingConfig(**{"epochs": 4, **settings})
    data = DataConfig(kind=DataKind.python, source=f"{HERE}:{source}", task=task)
    return SessionSetup(replace(make_plan(family=family, training=training), data=data))


def facts(source: str, task: Task = Task.auto, **settings: Any) -> UserDataFacts:
    return describe_data(make_setup(source, task=task, **settings))


@pytest.mark.parametrize("source", ["images", "image_arrays", "tensor_datasets"])
def test_tensors_arrays_and_tensor_datasets_are_rows_of_images(source: str) -> None:
    found = facts(source)
    assert (found.task, found.outputs) == (Task.classification, NetworkOutputs.SCORES)
    assert (found.n_train, found.n_validation) == (200, 80)
    assert (found.n_inputs, found.n_outputs) == ((1, 6, 6), 2)
    assert found.metrics == ("train_loss", "val_loss", "val_error")
    assert found.size_bytes == 280 * (36 * 4 + 8)


def test_the_note_names_all_parts() -> None:
    (note,) = facts("images").notes
    assert "200 train, 80 validation, 40 test; rows (1, 6, 6) with targets ()" in note
    assert "(float32 and int64)" in note


def test_frames_are_columns_of_numbers() -> None:
    found = facts("frames")
    assert (found.task, found.outputs) == (Task.regression, NetworkOutputs.NUMBERS)
    assert (found.n_inputs, found.n_outputs, found.takes_integers) == (3, 1, False)


def test_numbers_whose_differences_float32_rounds_away_are_said() -> None:
    lost = [note for note in facts("far_numbers").notes if "rounds away" in note]
    assert ["its rows lie so far" in lost[0], "its targets lie so far" in lost[1]] == [True, True]
    assert not any("rounds away" in note for note in facts("frames").notes)


def test_rows_may_have_several_targets() -> None:
    assert facts("pairs_of_numbers").n_outputs == 2
    found = facts("sequences")
    assert (found.n_inputs, found.n_outputs, found.takes_integers) == (8, 5, True)
    assert facts("sequences", Task.regression).n_outputs == 8


def test_of_datasets_lengths_and_shapes_are_known() -> None:
    found = facts("datasets")
    assert (found.n_train, found.n_outputs, found.size_bytes) == (200, 2, None)
    assert any("no change of it is noticed" in note for note in found.notes)
    assert found == facts("datasets")


def test_the_digest_is_of_the_content() -> None:
    assert facts("images").digest == facts("images").digest
    assert facts("images").digest != facts("image_arrays").digest  # of other numbers
    assert facts("images").digest != facts("tensor_datasets").digest  # which have no test part


def test_a_loss_of_the_users_decides_what_outputs_are() -> None:
    loss = f"{HERE}:of_any_kind"
    found = facts("frames", loss=loss)
    assert (found.outputs, found.metrics) == (NetworkOutputs.ANY, ("train_loss", "val_loss"))
    assert facts("images", loss=loss).outputs is NetworkOutputs.SCORES
    found = facts("negative", loss=loss)
    assert (found.outputs, found.n_outputs) == (NetworkOutputs.ANY, 2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere", r"sources has no nowhere\. It has: .*images"),
        ("not_a_function", "this is no function but a int"),
        ("needs_arguments", "failed with TypeError: .*called without arguments; mend it"),
        ("a_list", r'returned a list of 4; it must return \{"train": \(x, y\)'),
        ("misspelt", "returned a part 'valid'; .* Did you mean 'validation'"),
        ("only_train", "returned no part 'validation'"),
        ("no_pair", "train is a Tensor; it must be a pair"),
        ("other_shapes", r"a row of validation has x \(1, 5, 6\) of float32, one of train \(1, 6"),
        ("other_kinds", r"a row of validation has y \(\) of float64, one of train \(\) of int64"),
        ("no_rows", "validation has no rows"),
        ("fewer_targets", "validation: x has 5 rows and y 4"),
        ("one_dimension", r"train: x is \(5,\) and y \(5,\); .*x\[:, None\]"),
        ("texts", r"train's x is a DataFrame and holds no numbers \(object\): encode .*data=csv"),
        ("negative", "down to -1; class numbers begin with 0"),
        ("too_many", "targets go up to 1, and n_outputs says 1 classes"),
        ("endless", r"train is a Dataset without __len__ \(Endless\)"),
        ("unmeasured", r"train is a Dataset without __len__ \(Unmeasured\)"),
        ("no_pairs", r"train: row 0 is a Tensor; an item must be a pair \(x, y\)"),
        ("uncounted", 'nobody says how many classes .*"n_outputs"'),
    ],
)
def test_what_will_not_do_says_why_and_what_will(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        facts(source)
    assert f"data.source={HERE}:{source}" in str(raised.value)


def test_a_source_whose_module_is_not_there_is_refused() -> None:
    setup = make_setup("images")
    data = replace(setup.plan.data, source="no_such_module:parts")
    with pytest.raises(ConfigError, match=r"data\.source=no_such_module:parts: there is no module"):
        describe_data(replace(setup, plan=replace(setup.plan, data=data)))


def test_numbers_are_no_classes() -> None:
    with pytest.raises(ConfigError, match=r"data\.task=classification needs class numbers"):
        facts("frames", Task.classification)


def test_data_that_differs_from_call_to_call_is_refused_where_it_trains() -> None:
    setup = make_setup("unseeded", "linear")
    with pytest.raises(ConfigError, match=r"gave other data than when .*Seed what it draws"):
        open_data(replace(setup, facts=describe_data(setup)))
    setup = make_setup("images")
    assert len(open_data(replace(setup, facts=describe_data(setup))).parts.train) == 200


def test_tensors_are_put_on_a_device_once_in_the_trainings_precision() -> None:
    data = open_data(make_setup("image_arrays"))
    there = data.tensors("cpu", torch.float32)
    assert there is data.tensors("cpu", torch.float32)
    assert (there.train.x.dtype, there.train.y.dtype) == (torch.float32, torch.int64)
    assert data.tensors("cpu", torch.float64).train.x.dtype is torch.float64
    assert (
        open_data(make_setup("sequences")).tensors("cpu", torch.float32).train.x.dtype
        is torch.int64
    )
