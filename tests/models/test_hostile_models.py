"""A `best.pt` that a stranger made: one clear error, nothing of his runs, nothing is allocated."""

from __future__ import annotations

import importlib
import re
import resource
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import automl
from automl.config import DataConfig, TrainingConfig
from automl.data.load import load_dataset
from automl.errors import AutoMLError
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.python.family import PythonFamily
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from tests.models import networks
from tests.models.conftest import HOST, Listener, make_plan, make_spec

NORMED = "tests.models.networks:normed"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, dict[str, Any]]:
    """The content of a `best.pt` of the built-in network, and of one of a user's network."""
    folder = tmp_path_factory.mktemp("made")
    dataset = load_dataset(DataConfig(n_train=100, n_validation=50))
    training = TrainingConfig(epochs=1)
    contents = {}
    for name, family, params in (
        ("mlp", MLPFamily(), {"width": 8}),
        ("module", PythonFamily(target=NORMED), {"width": 8}),
    ):
        plan = make_plan(training=training, family=family)
        spec = replace(make_spec(folder / name, params))
        open_session(SessionSetup(plan, dataset)).run(spec, HOST, Listener())
        contents[name] = torch.load(Path(spec.checkpoint_dir) / "best.pt", weights_only=True)
    return contents


@pytest.fixture
def write(made: Mapping[str, dict[str, Any]], tmp_path: Path) -> Callable[..., Path]:
    """Writes a `best.pt` whose content was changed."""

    def write(kind: str, change: Change = lambda content: None) -> Path:
        path = tmp_path / "best.pt"
        torch.save(made[kind], path)
        content = torch.load(path, weights_only=True)
        change(content)
        torch.save(content, path)
        return path

    return write


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A process that may take 2 GB more address space, and no more."""
    size_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size_bytes + 2**31, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(path: Path, **how: Any) -> str:
    """The message; it is short, whatever the file holds."""
    with pytest.raises(AutoMLError) as raised:
        automl.load(path, **how)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert len(message) < 1000
    return message


# --- whose code runs ------------------------------------------------------------------------------


def runs(marker: Path, target: str, n_inputs: object, n_outputs: object) -> Change:
    """A file whose network is built by any function there is, with arguments of its author's."""

    def change(content: dict[str, Any]) -> None:
        content["state"]["model"] = {
            "target": target,
            "n_inputs": n_inputs,
            "n_outputs": n_outputs,
            "arguments": {},
        }

    return change


@pytest.mark.parametrize("target", ["os:popen", "subprocess:check_output", "mine:build"])
def test_no_function_runs_because_a_file_names_it(
    tmp_path: Path, write: Callable[..., Path], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "it-ran"
    (tmp_path / "mine.py").write_text(
        f"import pathlib\npathlib.Path({str(marker)!r}).touch()\ndef build(*_): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    arguments = {
        "os:popen": (f"touch {marker}; echo", "r"),
        "subprocess:check_output": (["touch", str(marker)], -1),
        "mine:build": (2, 2),
    }[target]
    path = write("module", runs(marker, target, *arguments))
    importlib.invalidate_caches()
    message = refused(path)
    assert not marker.exists()
    if target == "mine:build":
        assert f"import mine; automl.load({str(path)!r}, build=mine.build)" in message


def test_the_call_that_the_error_prints_works(write: Callable[..., Path]) -> None:
    path = write("module")
    found = re.search(r"automl\.load\((.*), build=(.*)\)", refused(path))
    assert found is not None
    assert found.groups() == (repr(str(path)), NORMED.replace(":", "."))
    points = [[0.0, 0.0], [1.0, 1.0]]
    assert len(automl.load(path, build=networks.normed).predict(points)) == 2
    assert automl.load(write("mlp")).params == {"width": 8}, "the built-in network needs nothing"


def test_a_name_in_the_file_is_shown_only_as_a_name(write: Callable[..., Path]) -> None:
    def change(content: dict[str, Any]) -> None:
        content["state"]["model"]["target"] = "\x1b[2Jos:system" + "x" * 10_000

    assert "\x1b" not in refused(write("module", change))


def test_a_function_that_does_not_fit_says_so(write: Callable[..., Path]) -> None:
    path = write("module", model(arguments={}))
    assert "returned a int" in refused(path, build=networks.no_module)
    assert "unexpected keyword argument" in refused(write("module"), build=networks.dropping)
    assert "size mismatch" in refused(
        write("module"), build=lambda *_, width: networks.normed(2, 2, 4)
    )


# --- what the file says of itself -----------------------------------------------------------------


def state(**changes: object) -> Change:
    return lambda content: content["state"].update(changes)


def model(**changes: object) -> Change:
    return lambda content: content["state"]["model"].update(changes)


def column(**changes: object) -> Change:
    return lambda content: content["state"]["preprocessing"]["columns"][0].update(changes)


def without(*keys: str) -> Change:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        del content[keys[-1]]

    return change


def weights(change: Callable[[torch.Tensor], object]) -> Change:
    """Return a change that replaces each weight."""

    def changed(content: dict[str, Any]) -> None:
        old = content["state"]["weights"]
        content["state"]["weights"] = {name: change(weight) for name, weight in old.items()}

    return changed


def wide(content: dict[str, Any]) -> None:
    """A network that agrees with its weights, which are a number each, seen a million times."""
    n = 1000
    content["state"]["model"] = {"n_inputs": 2, "hidden_widths": [n, n], "n_outputs": 2}
    one = torch.zeros(1)
    content["state"]["weights"] = {
        f"layers.{i}.{part}": one.expand(shape)
        for i, shapes in enumerate([((n, 2), (n,)), ((n, n), (n,)), ((2, n), (2,))])
        for part, shape in zip(("weight", "bias"), shapes, strict=True)
    }


def nested() -> list[object]:
    """A list that is small, and 2¹⁰⁰ long to whoever goes through it."""
    inner: list[object] = []
    for _ in range(100):
        inner = [inner, inner]
    return inner


HOSTILE: dict[str, Change] = {
    "no state of a network": without("state", "model"),
    "no weights": without("state", "weights"),
    "weights that are no tensors": weights(lambda weight: [1.0]),
    "no floating weight": weights(lambda weight: weight.int()),
    "weights of eight bits": weights(lambda weight: weight.to(torch.float8_e4m3fn)),
    "weights without content": weights(lambda weight: weight.to("meta")),
    "sparse weights": weights(lambda weight: weight.to_sparse()),
    "weights of another shape": weights(lambda weight: torch.cat([weight, weight])),
    "no weights at all": state(weights={}),
    "params that are a number": lambda content: content.update(params=3),
    "no params": without("params"),
    "params that nest": lambda content: content.update(params={"a": nested()}),
    "metrics that nest": lambda content: content.update(metrics={"a": nested()}),
    "metrics that are a number": lambda content: content.update(metrics=3),
    "a target that is a number": state(target=3),
    "a digest that nests": state(data=nested()),
    "a task that nests": state(task=nested()),
    "a task to be decided": state(task="auto"),
    "a mean that is a text": state(target_mean="3"),
    "classes that are a number": state(classes=3),
    "classes that nest": state(classes=[nested(), nested()]),
    "one class of two": state(classes=["a"]),
    "labels too long for an array": state(classes=["a", "b" * 10_000_000]),
    "preprocessing that is a text": state(preprocessing="automl-columns-1"),
    "preprocessing of another format": state(preprocessing={"format": nested(), "columns": []}),
    "a column with a key of its own": column(more=1),
    "a column of many features": column(has_indicator=10**12),
    "a column whose mean nests": column(mean=nested()),
    "a column that is not scaled": column(scale=0.0),
    "no columns": lambda content: content["state"]["preprocessing"].update(columns=[]),
    "many inputs": model(n_inputs=10**12),
    "many outputs": model(n_outputs=10**12),
    "no outputs": model(n_outputs=0),
    "a wide layer": model(hidden_widths=[10**12]),
    "many layers": model(hidden_widths=[1] * 100_000),
    "layers that nest": model(hidden_widths=nested()),
    "a width that is true": model(hidden_widths=[True]),
    "weights that are larger than the file": wide,
}


SAID = {
    "a wide layer": "the weights are not of its layers",
    "many inputs": "the weights are not of its layers",
    "weights that are larger than the file": "weights larger than the file",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_lies_is_refused(
    name: str, write: Callable[..., Path], little_memory: None
) -> None:
    path = write("mlp", HOSTILE[name])
    message = refused(path)
    assert "not a model that can be used" in message
    assert SAID.get(name, "") in message, "before anything is made"


@pytest.mark.parametrize(
    "change",
    [
        model(arguments={"width": nested()}),
        model(arguments=[("width", 8)]),
        model(arguments={3: 8}),
        model(n_inputs="2"),
    ],
)
def test_a_users_network_is_built_with_plain_values_alone(
    write: Callable[..., Path], change: Change
) -> None:
    called: list[object] = []
    assert "not a model" in refused(write("module", change), build=called.append)
    assert called == []


# --- the file itself ------------------------------------------------------------------------------


def rewritten(path: Path, pickled: bytes | None = None, *, compressed: bool = False) -> Path:
    """The same archive with another pickle in it, or compressed."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in parts.items():
            archive.writestr(name, pickled if pickled and name.endswith("data.pkl") else content)
    return path


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x04\x85R.",  # bytearray(2**26)
        b"\x80\x02ctorch\nTensor\nJ\x00\x00\x00\x04\x85R.",  # torch.Tensor(2**26)
    ],
)
def test_a_pickle_that_makes_other_things_than_ours_is_refused(
    write: Callable[..., Path], pickled: bytes
) -> None:
    assert "not a readable checkpoint (it asks for" in refused(rewritten(write("mlp"), pickled))


def test_a_file_with_two_parts_of_one_name_is_refused(write: Callable[..., Path]) -> None:
    """The check would read one of the parts, and torch the other."""
    path = write("mlp")
    with zipfile.ZipFile(path, "a") as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("data.pkl"))
        archive.writestr(name.upper(), archive.read(name))
    assert "two of its parts have one name" in refused(path)


def test_a_compressed_file_is_refused(write: Callable[..., Path]) -> None:
    path = rewritten(write("mlp", state(more=torch.zeros(1_000_000))), compressed=True)
    assert path.stat().st_size < 100_000
    assert "not a readable checkpoint (it is compressed" in refused(path)


def test_a_file_of_torchs_old_format_is_refused(
    write: Callable[..., Path], made: Mapping[str, dict[str, Any]]
) -> None:
    path = write("mlp")
    torch.save(made["mlp"], path, _use_new_zipfile_serialization=False)
    assert "not a readable checkpoint" in refused(path)
