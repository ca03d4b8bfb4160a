"""`doctor`: one page on this machine and installation, to paste into a report of a problem.

It says the versions, the devices, the disk, MLflow's store and the extras, and below them what is
wrong with each, with the remedy. Facts are gathered first; `find_problems` judges them alone.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from automl.admission.refusals import gib_text
from automl.commands.command_call import CommandCall
from automl.commands.devices import read_device_accounts
from automl.config import Config, StudyConfig
from automl.devices.host import host_memory, usable_cores
from automl.devices.torch_gpus import torch_gpu_uuids
from automl.errors import AutoMLError
from automl.record.texts import fit_line
from automl.terminal.console import open_console
from automl.terminal.machine_output import wants_answer, write_answer
from automl.tracking.mlflow_loading import load_lean, set_delivery_environment
from automl.tracking.tracking_uri import resolve_uri
from automl.trial import DeviceKind

DISTRIBUTION = "automl-sweep"
SHOWN = ("torch", "optuna", "mlflow", "hydra-core", "numpy", "pandas", "scikit-learn", "py3nvml")
"""The libraries whose versions the page shows by themselves."""
_MAX_LINE = 500
_NO_EXTRAS = {"dev", "recipes", "sklearn"}
"""Extras that install nothing for users, or many of the others."""


@dataclass(frozen=True)
class InstalledVersions:
    """What is installed, by the metadata of the distributions."""

    versions: Mapping[str, str]
    """Versions by distribution, those of `SHOWN`."""
    missing: Sequence[str]
    """Requirements of the package that are not fulfilled, such as `optuna>=5.0 (here: 4.9)`."""
    extras: Mapping[str, str]
    """The versions of the distributions of each extra; empty where one of them is not installed."""
    others: Sequence[str]
    """Other distributions that bring a package `automl`, too."""


@dataclass(frozen=True)
class MachineFacts:
    """The program and the machine that it runs on."""

    version: str
    """The version of the package, and its folder."""
    python: str
    system: str
    cores: int
    total_bytes: int
    """Main memory, or what a container may take of it."""
    free_bytes: int


@dataclass(frozen=True)
class DeviceFacts:
    """The devices as the driver and torch have them."""

    devices: Sequence[str]
    """A line for each device: its name and memory."""
    n_gpus: int
    torch_gpus: int | None
    """Number of GPUs that torch can use; None where the driver has none, and torch is not asked."""
    error: str | None = None
    """Why they cannot be read, or why torch cannot list its own."""


@dataclass(frozen=True)
class DiskFacts:
    """The disk of the folder of studies."""

    folder: str
    free_bytes: int
    least_bytes: int | None
    """Free bytes below which no trial starts (`study.min_free_space`)."""
    is_writable: bool


@dataclass(frozen=True)
class StoreFacts:
    """MLflow's store."""

    address: str
    """Its setting and address, without credentials."""
    error: str | None
    """Why it cannot be used, with the remedy."""


@dataclass(frozen=True)
class DoctorFacts:
    """All that the page shows, and that problems are found by."""

    machine: MachineFacts
    installed: InstalledVersions
    devices: DeviceFacts
    disk: DiskFacts
    store: StoreFacts


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    what: str
    remedy: str


def run(call: CommandCall) -> int:
    """Print the page. Return 1 where something is wrong, else 0."""
    facts = gather_facts(call.config)
    problems = list(find_problems(facts))
    if wants_answer():
        write_answer(
            {**{f.name: getattr(facts, f.name) for f in fields(facts)}, "problems": problems}
        )
    else:
        _print_page(facts, problems)
    return 1 if problems else 0


def gather_facts(config: Config, path: Sequence[str] | None = None) -> DoctorFacts:
    """Return what the page shows; `path` is where distributions are looked for."""
    return DoctorFacts(
        _machine_facts(),
        installed_versions(sys.path if path is None else path),
        _device_facts(config),
        _disk_facts(config.study),
        _store_facts(config),
    )


def find_problems(facts: DoctorFacts) -> Iterator[Problem]:
    """Yield what is wrong, the worst first."""
    installed, devices, disk, store = facts.installed, facts.devices, facts.disk, facts.store
    for other in installed.others:
        yield Problem(
            f"{other} brings a package named automl, too: its files and ours lie in one folder",
            f"pip uninstall --yes {other} {DISTRIBUTION}, then install {DISTRIBUTION} again",
        )
    for requirement in installed.missing:
        yield Problem(
            f"{DISTRIBUTION} needs {requirement}",
            f"install {DISTRIBUTION} again in an environment of its own",
        )
    if devices.error is not None:
        yield Problem(
            fit_line(devices.error),
            "see whether nvidia-smi answers; devices.only=cpu goes on without GPUs",
        )
    elif devices.n_gpus and not devices.torch_gpus:
        yield Problem(
            f"the driver has {devices.n_gpus} GPUs, and torch can use none of them",
            "install a torch for CUDA, of a version that the driver takes, and see whether "
            "CUDA_VISIBLE_DEVICES hides them",
        )
    if not disk.is_writable:
        yield Problem(f"{disk.folder} cannot be written", "name another folder by study.dir=FOLDER")
    if disk.least_bytes is not None and disk.free_bytes < disk.least_bytes:
        yield Problem(
            f"the disk of {disk.folder} has {gib_text(disk.free_bytes)} free, and no trial starts "
            f"below {gib_text(disk.least_bytes)}",
            "free some (archive or delete old studies), or set study.dir= or study.min_free_space=",
        )
    if store.error is not None:
        yield Problem(store.error, "tracking.uri=none sweeps without MLflow; sync delivers later")


def installed_versions(path: Sequence[str]) -> InstalledVersions:
    """Return what the distributions on the path say of themselves."""
    found = {_normal(d.name): d.version for d in metadata.distributions(path=list(path))}
    required = [Requirement(text) for text in metadata.requires(DISTRIBUTION) or ()]
    needed = [r for r in required if r.marker is None or r.marker.evaluate({"extra": ""})]
    return InstalledVersions(
        {name: found[name] for name in SHOWN if name in found},
        [
            f"{r.name}{r.specifier} (here: {found.get(_normal(r.name), 'none')})"
            for r in needed
            if not r.specifier.contains(found.get(_normal(r.name), "0"), prereleases=True)
        ],
        {extra: _extra_text(extra, required, found) for extra in _extras()},
        sorted({*_distributions_with_automl(path)} - {DISTRIBUTION}),
    )


def _extras() -> list[str]:
    extras = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    return sorted({*extras} - _NO_EXTRAS)


def _extra_text(extra: str, required: Sequence[Requirement], found: Mapping[str, str]) -> str:
    """Return the versions of an extra's distributions; empty where one is not installed."""
    names = [
        _normal(r.name)
        for r in required
        if r.marker is not None
        and r.marker.evaluate({"extra": extra})
        and not r.marker.evaluate({"extra": ""})
    ]
    if not all(name in found for name in names):
        return ""
    return ", ".join(f"{name} {found[name]}" for name in names)


def _distributions_with_automl(path: Sequence[str]) -> Iterator[str]:
    """Yield the distributions that lay down a file in a folder `automl`."""
    for distribution in metadata.distributions(path=list(path)):
        tops = (distribution.read_text("top_level.txt") or "").split()
        files = distribution.files or ()
        if "automl" in tops or any(file.parts[0] == "automl" for file in files):
            yield _normal(distribution.name)


def _normal(name: str) -> str:
    """Return the name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _device_facts(config: Config) -> DeviceFacts:
    """Return the devices that `devices.only` names, and whether torch can use the GPUs of them."""
    try:
        accounts = read_device_accounts(config)
    except AutoMLError as error:
        return DeviceFacts((), 0, None, str(error))
    gpus = [a.device for a in accounts if a.device.address.kind is DeviceKind.GPU]
    lines = [
        f"{fit_line(d.name)}, {gib_text(d.free_bytes)} of {gib_text(d.total_bytes)} free"
        for d in (a.device for a in accounts)
    ]
    if not gpus:
        return DeviceFacts(lines, 0, None)
    try:
        return DeviceFacts(lines, len(gpus), len(torch_gpu_uuids()))
    except AutoMLError as error:
        return DeviceFacts(lines, len(gpus), 0, str(error))


def _disk_facts(study: StudyConfig) -> DiskFacts:
    folder = Path(study.dir).absolute()
    while not folder.exists():
        folder = folder.parent
    disk = os.statvfs(folder)
    is_writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    return DiskFacts(study.dir, disk.f_bavail * disk.f_frsize, study.min_free_bytes, is_writable)


def _store_facts(config: Config) -> StoreFacts:
    """Return MLflow's store, and whether it answers. A database file is not opened, as MLflow would
    migrate one of an older version."""
    try:
        uri = resolve_uri(config.tracking)
    except AutoMLError as error:
        return StoreFacts(str(config.tracking.uri), str(error))
    if uri.sqlite_path is not None:
        return StoreFacts(str(uri), None)
    set_delivery_environment(os.environ)
    try:
        load_lean("automl.tracking.mlflow_store").open_client(uri)
    except AutoMLError as error:
        return StoreFacts(str(uri), str(error))
    return StoreFacts(f"{uri} answers", None)


def _machine_facts() -> MachineFacts:
    total_bytes, free_bytes = host_memory()
    return MachineFacts(
        f"{metadata.version(DISTRIBUTION)}, in {Path(__file__).parents[1]}",
        f"{platform.python_version()}, {sys.executable}",
        platform.platform(),
        usable_cores(),
        total_bytes,
        free_bytes,
    )


def _print_page(facts: DoctorFacts, problems: Sequence[Problem]) -> None:
    machine, installed, disk = facts.machine, facts.installed, facts.disk
    extras = [f"{extra} ({text})" for extra, text in installed.extras.items() if text]
    rows = [
        (DISTRIBUTION, machine.version),
        ("Python", machine.python),
        ("system", f"{machine.system}, {machine.cores} cores"),
        ("memory", f"{gib_text(machine.free_bytes)} of {gib_text(machine.total_bytes)} free"),
        ("libraries", ", ".join(f"{name} {v}" for name, v in installed.versions.items())),
        ("extras", "; ".join(extras) or "none"),
        *(("device", line) for line in facts.devices.devices),
        ("disk", f"{gib_text(disk.free_bytes)} free for {disk.folder}"),
        ("MLflow", facts.store.address),
    ]
    console = open_console()
    for name, text in rows:
        console.say(f"{name:13} {fit_line(text, _MAX_LINE)}")
    for problem in problems:
        console.say(f"wrong: {problem.what}", "red")
        console.say(f"  remedy: {problem.remedy}")
    if not problems:
        console.say("nothing is wrong")
