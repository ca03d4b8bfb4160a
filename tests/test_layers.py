"""The rules of the layout, read from the syntax trees, imports inside functions included.

Imports form a star: parts know the shared words and (two of them) one other part; what stands above
them wires. No module imports itself by way of others. Each foreign library has one owner. And:
composing, asking and placing load no torch.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import automl
from automl.models.family import load_families
from tests.manuals import section

PACKAGE = Path(automl.__file__).parent

SHARED = {
    "config": {"errors", "trial"},
    "errors": set[str](),
    "record": {"config", "errors", "trial"},
    "trial": set[str](),
}
"""The shared words: everybody may import them, and they those."""
PARTS = {
    "admission": {"devices"},
    "data": {"devices"},
    "devices": set[str](),
    "execution": set[str](),
    "export": {"data", "models"},
    "in_trial": {"data"},
    "integrations": {"in_trial", "objectives"},
    "measure": {"data", "export", "in_trial", "models", "objectives"},
    "models": {"data", "in_trial"},
    "objectives": {"data", "in_trial", "models"},
    "report_page": {"search"},
    "search": set[str](),
    "terminal": {"admission", "devices"},
    "tracking": set[str](),
}
"""What each part may import besides the shared words and itself."""

ABOVE = {
    "api": {"__init__", "sklearn"},
    "cli": {"__main__", "__init__", "api", "sklearn"},
    "integrations": {"__init__"},
    "sklearn": {"__init__"},
}
"""What stands above the parts' users: the command line and the calls from Python, and what only a
user's own training calls; who may import them."""

OWNERS = {
    "IPython": {"terminal"},
    "antlr4": {"cli"},
    "catboost": {"models"},
    "cloudpickle": {"api"},
    "cmaes": {"search"},
    "hydra": {"api", "cli"},
    "jinja2": {"report_page"},
    "lightgbm": {"integrations", "models"},
    "lightning": {"integrations"},
    "markupsafe": {"report_page"},
    "matplotlib": {"models"},
    "mlflow": {"tracking"},
    "numpy": {
        "admission",
        "data",
        "export",
        "in_trial",
        "integrations",
        "measure",
        "models",
        "objectives",
        "report_page",
        "search",
        "sklearn",
    },
    "omegaconf": {"api", "cli"},
    "onnx": {"export"},
    "onnxruntime": {"export"},
    "optuna": {"search"},
    "packaging": {"commands"},
    "pandas": {"data"},
    "psutil": {"devices"},
    "psycopg": {"record"},
    "psycopg2": {"search"},
    "py3nvml": {"devices"},
    "pyarrow": {"data", "execution"},
    "ray": {"execution"},
    "rich": {"terminal"},
    "scipy": {"models", "search"},
    "sklearn": {"data", "integrations", "models", "report_page", "sklearn"},
    "skorch": {"integrations"},
    "tabicl": {"models"},
    "tabpfn": {"models"},
    "threadpoolctl": {"data", "models", "search"},
    "torch": {"export", "in_trial", "measure", "models", "objectives"},
    "torch_tensorrt": {"export", "measure"},
    "torchao": {"measure"},
    "transformers": {"integrations"},
    "urllib3": {"tracking"},
    "wandb": {"objectives"},
    "xgboost": {"integrations"},
    "yaml": {"cli", "models"},
}
"""Which part (or module beside the parts) may import a foreign library."""


def home(path: Path) -> str:
    """The part, or the module beside the parts, that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


@cache
def looked_at(source: str) -> Sequence[ast.Import | ast.ImportFrom | ast.Call]:
    """What of a source text may import something; parsed once for all that is asked of it."""
    return [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant))
    ]


def imports(source: str) -> Iterator[str]:
    """The dotted name of everything that a source text imports, in whatever way."""
    for node in looked_at(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            for alias in node.names:
                # `from automl import cli` imports a module; of other packages the root decides.
                yield f"automl.{alias.name}" if node.module == "automl" else node.module
        elif isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            if called in ("import_module", "__import__", "find_spec"):
                yield str(node.args[0].value)


def broken_rules(where: str, source: str) -> list[str]:
    """What a source text of `where` imports and should not."""
    broken = []
    for name in imports(source):
        root, _, rest = name.partition(".")
        if root == "automl":
            there = rest.partition(".")[0]
            if there and not may_import(where, there):
                broken.append(f"{where} imports automl.{there}")
        elif root not in sys.stdlib_module_names and where not in OWNERS.get(root, set()):
            owner = " and ".join(sorted(OWNERS.get(root, {"nobody yet: name an owner"})))
            broken.append(f"{where} imports {root}, which belongs to {owner}")
    return broken


def may_import(where: str, there: str) -> bool:
    if where in SHARED:
        return there == where or there in SHARED[where]
    if there == where or there in SHARED:
        return True
    if where in PARTS:
        return there in PARTS[where]
    return where in ABOVE[there] if there in ABOVE else True  # the parts' users


SERVED = PACKAGE / "tracking" / "registry" / "served.py"
"""No module of the package: MLflow runs it where the package is not installed."""
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != SERVED)


def test_imports_form_a_star_and_libraries_have_one_owner() -> None:
    broken = {path: broken_rules(home(path), path.read_text("utf-8")) for path in FILES}
    assert {str(path): rules for path, rules in broken.items() if rules} == {}


def test_a_served_model_needs_neither_this_package_nor_torch() -> None:
    roots = {name.partition(".")[0] for name in imports(SERVED.read_text("utf-8"))}
    assert roots - set(sys.stdlib_module_names) == {"mlflow", "numpy", "pandas"}


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("search", "import automl.objectives.models"),
        ("models", "import automl.objectives.training_plan"),
        ("models", "from automl.export import table_graph"),
        ("search", "from automl import objectives as training"),
        ("tracking", "from automl.search.study import Study"),
        ("devices", "from automl.admission.placement_policy import place_trial"),
        ("config", "from automl.search.search_space import SearchSpace"),
        ("config", "from automl.record.texts import fit_text"),
        ("record", "from automl.devices.device_reading import DeviceReading"),
        ("trial", "from automl.config import Config"),
        ("running", "from automl.cli.command_steps import compose_command"),
        ("commands", "from automl.cli.arguments import CommandLine"),
        ("search", "import torch"),
        ("running", "from mlflow.tracking import MlflowClient"),
        ("data", "def f():\n    import torch"),
        ("data", "if TYPE_CHECKING:\n    from torch import Tensor"),
        ("data", "importlib.import_module('torch.nn')"),
        ("running", "import requests"),
        ("commands", "from automl.api.sweep_call import sweep"),
        ("models", "import cloudpickle"),
        ("integrations", "from automl.search.study import Study"),
        ("integrations", "import torch"),
        ("models", "import automl.integrations.lightning"),
        ("running", "from automl import integrations"),
        ("models", "import lightning.pytorch"),
    ],
)
def test_a_broken_rule_is_seen(where: str, source: str) -> None:
    assert len(broken_rules(where, source)) == 1


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("admission", "from automl.devices.device_reading import DeviceReading"),
        ("record", "from automl.config import StudyConfig"),
        ("models", "import torch\nfrom automl.data.dataset import Dataset"),
        ("running", "from automl.search.study import Study"),
        ("__main__", "from automl.cli import main"),
        ("__init__", "from automl.api.sweep_call import sweep"),
        ("cli", "from automl.running.run_sweep import run_sweep\nimport hydra, json"),
        ("__init__", "from automl import integrations"),
        (
            "integrations",
            "import lightning\nfrom automl.in_trial.trial_context import TrialContext",
        ),
    ],
)
def test_what_the_rules_allow(where: str, source: str) -> None:
    assert broken_rules(where, source) == []


def test_every_part_and_owner_exists() -> None:
    homes = {home(path) for path in FILES}
    assert set(PARTS) <= homes
    assert homes >= set(SHARED)
    assert set().union(*OWNERS.values()) <= homes


# --- families ---


def test_a_family_trains_with_the_library_that_it_names_and_no_other() -> None:
    """And within training nobody but the families imports scikit-learn."""
    named: dict[str, set[str]] = {}  # a folder may hold several families of a kind
    for family in load_families().values():
        named.setdefault(family.__module__.split(".")[-2], set()).add(family.library)
    package = PACKAGE / "models" / "families"
    for path in sorted((PACKAGE / "models").rglob("*.py")):
        inside = path.is_relative_to(package)
        folder = path.relative_to(package).parts[0] if inside else ""
        roots = {name.partition(".")[0] for name in imports(path.read_text("utf-8"))}
        used = roots & {"torch", "sklearn", "lightgbm", "catboost"}
        if folder in named:
            assert used <= named[folder], path
        assert used <= {"torch"} or used <= named.get(folder, set()), path


# --- no circles -----------------------------------------------------------------------------------


def module_name(path: Path) -> str:
    """`automl.config` for the `__init__.py` of a package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, modules: Set[str]) -> set[str]:
    """Which of the modules a source text imports; a name of a package means its `__init__`.

    That the packages above an imported module are imported too makes no circle of them.
    """
    found = set()
    for node in looked_at(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules
            found |= set() if names <= modules else {node.module}
    return found & modules


def circle(imports_of: Mapping[str, Set[str]]) -> list[str]:
    """The modules on a shortest way from one back to itself; empty: there is no such way."""
    with suppress(CycleError):
        TopologicalSorter(imports_of).prepare()
        return []
    ways = [way for module in sorted(imports_of) if (way := way_back(module, imports_of))]
    return min(ways, key=len, default=[])


def way_back(module: str, imports_of: Mapping[str, Set[str]]) -> list[str]:
    """Breadth first from a module to itself."""
    ways, seen = deque([[module]]), set[str]()
    while ways:
        way = ways.popleft()
        if module in imports_of[way[-1]]:
            return [*way, module]
        for there in sorted(imports_of[way[-1]] - seen):
            seen.add(there)
            ways.append([*way, there])
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    files = {module_name(path): path for path in FILES}
    edges = {name: imported(path.read_text("utf-8"), set(files)) for name, path in files.items()}
    assert " → ".join(circle(edges)) == ""


@pytest.mark.parametrize(
    "source",
    [
        "import a.b",
        "from a.b import thing",
        "from a import b",
        "def f():\n    from a.b import thing",
        "if TYPE_CHECKING:\n    from a.b import Thing",
    ],
)
def test_a_circle_is_seen_however_it_is_closed(source: str) -> None:
    modules = {"a", "a.b", "a.c", "d"}
    edges: dict[str, Set[str]] = {name: set() for name in modules}
    edges |= {"a.b": {"a.c", "d"}, "a.c": imported(source, modules)}
    assert circle(edges) == ["a.b", "a.c", "a.b"]


def test_the_package_of_an_imported_module_is_on_no_circle() -> None:
    modules = {"a", "a.b"}
    edges = {"a": imported("from a.b import Thing", modules), "a.b": imported("", modules)}
    assert circle(edges | {"d": imported("from a import Thing, b", modules)}) == []
    assert imported("from a import Thing, b", modules) == {"a", "a.b"}
    assert circle(edges | {"a.b": imported("from a import Thing", modules)}) == ["a", "a.b", "a"]


# --- the rooms of running/ ------------------------------------------------------------------------

ROOMS = {
    "prepare": set[str](),
    "messages": set[str](),
    "loop": {"messages"},
    "opening": {"prepare", "messages"},
    "trials": {"opening", "prepare", "loop", "messages"},
    "features": {"opening", "prepare", "messages"},
    "top": {"opening", "prepare", "loop", "messages", "trials", "features"},
    "refit": {"opening", "prepare", "loop", "messages", "trials", "features", "top"},
}
"""What the files of each room of `running/` may import besides their own room.

A room is a folder, but for two: `messages` is `loop/messages.py`, `top` are the files beside the
folders. `prepare` checks and derives, `messages` and `loop` decide, `opening` opens what a sweep
works with, `trials` carries, `features` do what a sweep does besides, `top` wires, and a `refit` is
one or two sweeps.
"""
KNOW_ALL_PARTS = {
    "opening/parts",
    "runner",
    "sweep_end",
    "sweep_lines",
    "sweep_view",
    "trials/steering",
}
"""The files that name `SweepParts`, all that is open of a sweep; the others take what they need.
The list only shrinks."""
RUNNING = PACKAGE / "running"


def room(name: str) -> str:
    """The room of a file, named by its path below `running/` without the suffix."""
    return "messages" if name == "loop/messages" else name.rpartition("/")[0] or "top"


def upward(name: str, there: str) -> bool:
    """Whether a file of `running/` may not import another."""
    return room(there) not in {room(name), *ROOMS[room(name)]}


def test_the_rooms_of_running_stand_above_each_other() -> None:
    modules = {module_name(path) for path in FILES}
    files = [path for path in RUNNING.rglob("*.py") if path.name != "__init__.py"]
    below = f"{module_name(RUNNING / '__init__.py')}."
    names = [str(path.relative_to(RUNNING).with_suffix("")) for path in files]
    assert set(map(room, names)) == set(ROOMS)
    found = {
        (name, there)
        for path, name in zip(files, names, strict=True)
        for module in imported(path.read_text("utf-8"), modules)
        if module.startswith(below)
        for there in [module.removeprefix(below).replace(".", "/")]
        if there in names and upward(name, there)
    }
    assert found == set()


def test_no_feature_imports_another() -> None:
    """What features share is in `feature.py`; `table.py` alone knows them all."""
    folder = RUNNING / "features"
    names = {f"{module_name(folder / '__init__.py')}.{path.stem}" for path in folder.glob("*.py")}
    for path in folder.glob("*.py"):
        if path.stem not in ("__init__", "table"):
            others = imported(path.read_text("utf-8"), names)
            assert others <= {f"{module_name(folder / '__init__.py')}.feature"}, path


def test_few_files_know_all_open_parts_of_a_sweep() -> None:
    knowing = {path for path in FILES if "SweepParts" in path.read_text("utf-8")}
    assert {str(path.relative_to(RUNNING).with_suffix("")) for path in knowing} == KNOW_ALL_PARTS


# --- what is loaded -------------------------------------------------------------------------------


def test_manuals_layout_names_what_there_is() -> None:
    """Name by name, each with its line."""
    block = section("Layout").split("\nautoml/\n", 1)[1].split("\nconf/", 1)[0]
    lines = [re.fullmatch(r"    ((?:\S+  ?)*\S+)  +\S.*", line) for line in block.splitlines()]
    assert all(lines), "a name without its line"
    named = {name.rstrip("/") for line in lines if line for name in line[1].split()}
    other = {"__pycache__", "conf", "py.typed", "README.md"}
    there = {path.name for path in PACKAGE.iterdir()} - other
    assert named == there
    assert len(there) <= 25, "more than one glance takes in"


COMPOSE = """
import automl, automl.config, automl.trial, automl.errors
from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
config = compose_command(parse_command_line(["sampler=random", "study.name=a"])).config
"""
ASK = """
from pathlib import Path
from automl.search.study_identity import StudyIdentity
from automl.search.study_identity import StudyRules
from automl.search.search_space import parse_space
from automl.search.study import Study
rules = StudyRules(parse_space(config.space), config.sampler, config.pruner, StudyIdentity({}, {}))
study = Study.open(config.study, rules, Path.cwd())
assert study.ask().number == 0
study.close()
"""
NAME_INTEGRATIONS = """
import automl
automl.integrations.__all__
"""
PLACE = """
from automl.admission.accounting.ledger import LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import LOCAL_NODE, DeviceId, ResourceRequest
gpu = DeviceId(LOCAL_NODE, "GPU-a")
now = DeviceReading(0.0, (DeviceSnapshot(gpu, "a GPU", 2**34, 2**34, 0.0),))
limits = AdmissionLimits(max_concurrent_trials=1, headroom_bytes=0, stale_seconds=5.0)
found = place_trial(ResourceRequest(2**30), now, LedgerSnapshot(), limits, now_seconds=0.2)
assert found.devices == (gpu,)
"""
SHOW_DEVICES = """
from automl.commands.devices import read_device_accounts
from automl.config import DevicesConfig
config.devices = DevicesConfig("cpu")
assert read_device_accounts(config)
"""


@pytest.mark.parametrize(
    ("doing", "forbidden"),
    [
        (COMPOSE, {"torch", "mlflow", "pandas", "sklearn", "optuna", "numpy", "py3nvml"}),
        (COMPOSE + ASK, {"torch", "mlflow", "sklearn"}),
        (COMPOSE + PLACE, {"torch", "mlflow", "pandas", "sklearn", "optuna"}),
        (COMPOSE + SHOW_DEVICES, {"torch", "mlflow", "ray", "automl.execution.cluster"}),
        (
            "import automl.running.run_sweep",
            {
                *("mlflow", "pandas", "scipy", "sklearn", "jinja2"),
                *("psycopg", "automl.record.sharing", "ray", "automl.execution.cluster"),
            },
        ),
        ("import automl.commands.report", {"torch", "mlflow", "pandas", "sklearn", "optuna"}),
        (
            NAME_INTEGRATIONS,
            {"torch", "lightning", "transformers", "skorch", "lightgbm", "xgboost", "sklearn"},
        ),
    ],
    ids=[
        "composing",
        "asking",
        "placing",
        "showing devices",
        "sweeping",
        "reporting",
        "naming integrations",
    ],
)
def test_loads_nothing_heavy(doing: str, forbidden: set[str], tmp_path: Path) -> None:
    code = f"{doing}\nimport sys\nprint([m for m in {sorted(forbidden)} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
    )
    assert (done.stderr, done.stdout) == ("", "[]\n")
