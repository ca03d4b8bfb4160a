"""Runs the recipes as their users do: `make recipes [ONLY=name]`.

Each in a copy of the folder, with the very lines that it shows, two at a time. A recipe that works
ends each command with 0 and leaves a study with a trial that finished with a value. Prints a line
for each; exit 1 where one does not work.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from automl.record.studies import read_study, study_names
from automl.trial import TrialState
from tests.recipes.recipes import commands, recipe_files, says

N_AT_ONCE = 2
LIMIT_SECONDS = 600.0
"""For the commands of one recipe, which take seconds: long, since the machine may be busy."""
_N_SHOWN = 30


def main(names: Sequence[str]) -> int:
    """Run those named (none: all); returns the exit code."""
    chosen = [recipe for recipe in recipe_files() if not names or recipe.stem in names]
    if unknown := set(names) - {recipe.stem for recipe in chosen}:
        sys.stderr.write(f"no such recipe: {', '.join(sorted(unknown))}\n")
        return 2
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        broken = [name for name, fault in _run_all(chosen, Path(folder)) if fault]
    sys.stdout.write(f"{len(chosen)} recipes in {time.monotonic() - begun:.0f} s\n")
    if broken:
        sys.stdout.write(f"broken: {', '.join(sorted(broken))}\n")
    return 1 if broken else 0


def _run_all(recipes: Sequence[Path], folder: Path) -> Iterator[tuple[str, str]]:
    """The name of each as it ends, and what was wrong with it (nothing: empty)."""
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        runs = {pool.submit(run, recipe, folder / recipe.stem): recipe.name for recipe in recipes}
        for done in as_completed(runs):
            fault, seconds = done.result()
            sys.stdout.write(f"{runs[done]:<32}{seconds:6.1f} s  {fault or 'ok'}\n")
            sys.stdout.flush()
            yield runs[done], fault


def run(recipe: Path, folder: Path) -> tuple[str, float]:
    """What was wrong with it, run in `folder`, which is made (nothing: empty), and its seconds."""
    shutil.copytree(recipe.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    begun = time.monotonic()
    fault = ""
    for command in commands(says(recipe)):
        left = begun + LIMIT_SECONDS - time.monotonic()
        fault = fault or _fault_of(command, folder, _environment(folder), left)
    return fault or _nothing_came_out(folder / "studies"), time.monotonic() - begun


def _environment(folder: Path) -> Mapping[str, str]:
    """As in an active environment; one store for all, whose making takes its time."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    store = f"sqlite:///{folder.parent / 'mlflow.db'}"
    return {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": store}


def _fault_of(command: str, folder: Path, environment: Mapping[str, str], seconds: float) -> str:
    log = folder.with_suffix(".log")
    with log.open("w") as said:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == 0:
        return ""
    ended = "did not end" if code is None else f"exit {code}"
    shown = "\n".join(log.read_text("utf-8", errors="replace").splitlines()[-_N_SHOWN:])
    return f"{ended}\n$ {command}\n{shown}"


def _nothing_came_out(studies: Path) -> str:
    """What is missing of a study with a finished trial that has a value (nothing: empty)."""
    trials = [
        t for name in study_names(studies) for t in read_study(studies / name).trials.values()
    ]
    finished = [trial for trial in trials if trial.state is TrialState.FINISHED]
    if any(trial.value is not None and math.isfinite(trial.value) for trial in finished):
        return ""
    return f"no trial finished with a value, of {len(trials)}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
