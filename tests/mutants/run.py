"""Breaks one line at a time and sees whether a test fails: `make mutants [ONLY=name]`.

The list is `mutants.toml`. Each entry is tried in a copy of the working tree, by the tests that it
names; those must pass there unbroken first. A test that hangs, or a module that no longer imports,
has noticed it too. Exit 1 where fewer than 95 % are killed, or an entry no longer fits its file.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).parent / "mutants.toml"
COPIED = (
    "automl",
    "conf",
    "docs",
    "tests",
    "experiments",
    "pyproject.toml",
    "README.md",
    "Makefile",
)
PYTEST = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-o", "addopts=")
LIMIT_SECONDS = 180.0
"""A hang is a kill; long, since two run at a time and the machine may be busy."""
UNBROKEN_SECONDS = 900.0
"""For all tests of the list together."""
ENOUGH = 0.95


@dataclass(frozen=True)
class Mutant:
    """One change of one file, and the tests that are to notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """As pytest takes them; all are tried at once."""
    n_times: int = 1
    """How often `old` stands in the file; all places are changed."""

    def apply(self, text: str) -> str:
        """The changed text, Python still. Raises ValueError where the entry does not fit."""
        if (found := text.count(self.old)) != self.n_times:
            raise ValueError(f"{self.file} holds {self.old!r} {found} times, not {self.n_times}")
        changed = text.replace(self.old, self.new)
        try:
            compile(changed, self.file, "exec")
        except SyntaxError as error:
            raise ValueError(f"{self.new!r} makes no Python of {self.file}: {error}") from error
        return changed


def read_list(path: Path = LIST) -> list[Mutant]:
    """The entries of the list, by their names."""
    return [_mutant(name, entry) for name, entry in tomllib.loads(path.read_text()).items()]


def _mutant(name: str, entry: dict[str, Any]) -> Mutant:
    tests = entry.pop("tests")
    return Mutant(name, tests=(tests,) if isinstance(tests, str) else tuple(tests), **entry)


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """The working tree's files, to be broken at will."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            if (source := ROOT / name).is_dir():
                shutil.copytree(source, Path(folder, name), ignore=shutil.ignore_patterns("__py*"))
            elif source.exists():
                shutil.copy2(source, folder)
        yield Path(folder)


def run_tests(folder: Path, tests: Iterable[str], limit_seconds: float) -> str | None:
    """Why the tests did not pass in this tree: the first that failed; None: they passed."""
    where = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "FAULT_POINTS": "1"}
    process = subprocess.Popen(
        [sys.executable, *PYTEST, "-m", "not gpu", *tests],
        cwd=folder,
        env=os.environ | where,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        return f"no end within {limit_seconds:g} s"
    finally:
        with suppress(ProcessLookupError):  # what a broken test started ends with it
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if process.returncode == 0:
        return None
    told = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return told[0].split(" - ")[0] if told else (output.strip().splitlines() or ["?"])[-1]


def judge(mutant: Mutant) -> tuple[str, str]:
    """killed, SURVIVED or stale, and by what or why."""
    with copy_of_the_tree() as folder:
        path = folder / mutant.file
        try:
            path.write_text(mutant.apply(path.read_text()))
        except (OSError, ValueError) as error:
            return "stale", str(error)
        found = run_tests(folder, mutant.tests, LIMIT_SECONDS)
    return ("SURVIVED", " ".join(mutant.tests)) if found is None else ("killed", found)


def main(names: Sequence[str]) -> int:
    mutants = [m for m in read_list() if not names or m.name in names]
    if unknown := set(names) - {m.name for m in mutants}:
        sys.stderr.write(f"{LIST.name} has no {', '.join(sorted(unknown))}\n")
        return 2
    with copy_of_the_tree() as folder:
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        say(f"{len(mutants)} mutants; first the tests that they name, unbroken …")
        if (why := run_tests(folder, tests, UNBROKEN_SECONDS)) is not None:
            say(f"unbroken: {why}")
            return 1
    verdicts = []
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        for n, (mutant, (verdict, why)) in enumerate(
            zip(mutants, pool.map(judge, mutants), strict=True), 1
        ):
            say(f"{n:3}/{len(mutants)} {time.monotonic() - began:5.0f} s  {verdict:8} ", end="")
            say(f"{mutant.name}: {why}")
            verdicts.append(verdict)
    n_killed, n_stale = verdicts.count("killed"), verdicts.count("stale")
    say(f"{n_killed} of {len(mutants)} killed, {n_stale} stale")
    return int(bool(n_stale) or n_killed < ENOUGH * len(mutants))


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
