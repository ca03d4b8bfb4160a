"""A registered model, served where only its own requirements are installed; see README.md.

The environment is made anew from public packages, and neither automl nor torch is in it. What it
answers over HTTP is compared with what `predict` says here.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
from release import free_port, say

ROOT = Path(__file__).parents[2]
NAME, TARGET = "fresh", "grade"
MODEL = f"models:/{NAME}/1"
SECONDS = 120.0
"""For the server to answer, and for its processes to be gone."""
ABSENT = ("automl", "torch")
MODULES = (*ABSENT, "mlflow", "onnxruntime")
WHICH = "import sys, importlib.util as u; print([bool(u.find_spec(m)) for m in sys.argv[1:]])"
ODD: tuple[dict[str, Any], ...] = (
    {"size": 1, "weight": 2, "rooms": 3, "colour": "red", "code": 7},
    {"size": 1.0, "weight": -0.5, "rooms": 3.0, "colour": "red", "code": "7"},
    {"size": None, "weight": None, "rooms": None, "colour": None, "code": None},
    {"size": 0.25, "weight": 1e9, "rooms": 90, "colour": "never seen", "code": 12345},
    {"size": "?", "weight": "0.5", "rooms": "NA", "colour": "?", "code": "nobody"},
    {"size": -3, "weight": None, "rooms": 0, "colour": "blue", "code": None},
)
"""Whole, missing and unknown cells, and texts that say the same."""
Answers = list[dict[str, Any]]
T = TypeVar("T")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="of the table that is made")
    asked = parser.parse_args()
    seconds: dict[str, float] = {}

    def timed(what: str, work: Callable[[], T]) -> T:
        begun = time.monotonic()
        done = work()
        seconds[what] = time.monotonic() - begun
        return done

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        here = Here(folder)
        here.write_tables(asked.rows)
        timed("the study, by its defaults", here.sweep)
        timed("`register`", lambda: here.automl("register"))
        requirements = here.requirements()
        fresh = timed(
            f"the environment: {', '.join(requirements)}", lambda: Fresh(folder, requirements)
        )
        fresh.refuse_known()
        with fresh.served(here.store) as address:
            first = timed(
                "`mlflow models serve`, until it answers", lambda: answered(address, here.rows[:1])
            )
            served = timed(f"{len(here.rows)} rows over HTTP", lambda: ask(address, here.rows))
        own = timed("`predict` of the same rows here", here.predict)
        left = processes_in(folder)
    if left:
        raise SystemExit(f"still running in {folder}: {left}")
    n_alike, difference = compared([*first, *served], [own[0], *own])
    report(seconds, len(own), n_alike - 1, difference)
    return 0 if n_alike == len(own) + 1 and difference <= 1e-5 else 1


class Here:
    """The folder of the study, with automl."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store = f"sqlite:///{folder / 'mlflow.db'}"
        self.rows: Answers = []
        """As they are asked for."""

    def write_tables(self, n_rows: int) -> None:
        """`table.csv` to search, `rows.csv` to predict: some of its rows, and odd ones."""
        frame = table(n_rows)
        frame.to_csv(self._folder / "table.csv", index=False)
        known = json.loads(frame.drop(columns=TARGET).head(200).to_json(orient="records"))
        self.rows = [*map(dict, ODD), *known]
        with (self._folder / "rows.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)

    def sweep(self) -> None:
        self.automl(
            "sweep", "data=csv", "data.path=table.csv", f"data.target={TARGET}", "model=auto"
        )

    def automl(self, command: str, *words: str) -> None:
        environ = os.environ | {"MLFLOW_TRACKING_URI": self.store, "PYTHONPATH": str(ROOT)}
        python = [sys.executable, "-m", "automl", command, f"study.name={NAME}", *words]
        subprocess.run(python, cwd=self._folder, env=environ, stdout=subprocess.DEVNULL, check=True)

    def requirements(self) -> list[str]:
        """What the registered model says that it needs."""
        import mlflow

        mlflow.set_tracking_uri(self.store)
        file = mlflow.artifacts.download_artifacts(
            f"{MODEL}/requirements.txt", dst_path=str(self._folder)
        )
        return Path(file).read_text(encoding="utf-8").split()

    def predict(self) -> Answers:
        """What automl says of the rows."""
        self.automl("predict", "table=rows.csv", "to=scores.csv")
        scores = pd.read_csv(self._folder / "scores.csv", dtype={"prediction": str})
        return [
            {str(name): cell for name, cell in row.items()} for row in scores.to_dict("records")
        ]


def table(n_rows: int) -> pd.DataFrame:
    """Three grades by numbers with holes, whole numbers, and two columns of categories."""
    rng = np.random.default_rng(0)
    size, weight = rng.normal(size=(2, n_rows))
    rooms = rng.integers(1, 9, n_rows)
    colour = rng.choice(["red", "blue", "green"], n_rows)
    code = rng.choice([7, 8, 9], n_rows)
    score = size * (colour == "red") + 0.3 * rooms + (code == 8) + 0.5 * rng.normal(size=n_rows)
    grades = np.array(["low", "middle", "high"])[np.digitize(score, np.quantile(score, [0.4, 0.8]))]
    frame = pd.DataFrame({"size": size.round(4), "weight": weight.round(4), "rooms": rooms})
    frame = frame.assign(colour=colour, code=[f"c{one}" if one > 8 else one for one in code])
    for place, column in enumerate(("size", "weight", "colour", "code")):
        frame[column] = frame[column].mask(rng.random(n_rows) < 0.02 * (place + 1))
    return frame.assign(**{TARGET: grades})


class Fresh:
    """A virtual environment with the requirements and nothing else."""

    def __init__(self, folder: Path, requirements: list[str]) -> None:
        self._folder = folder / "fresh"
        subprocess.run([sys.executable, "-m", "venv", str(self._folder)], check=True)
        self._python = str(self._folder / "bin" / "python")
        install = [self._python, "-m", "pip", "install", "-qq", *requirements]
        subprocess.run(install, cwd=folder, env=self._environ(), check=True)

    def _environ(self) -> dict[str, str]:
        """Without what would lend it packages of ours."""
        known = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self._folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**known, "PATH": path, "VIRTUAL_ENV": str(self._folder)}

    def refuse_known(self) -> None:
        """Ends the program if the environment has what it must not have."""
        asked = [self._python, "-c", WHICH, *MODULES]
        said = subprocess.run(
            asked, cwd=self._folder, env=self._environ(), capture_output=True, text=True, check=True
        ).stdout.strip()
        expected = str([name not in ABSENT for name in MODULES])
        if said != expected:
            raise SystemExit(f"{MODULES} can be imported: {said}, and should be: {expected}")

    @contextmanager
    def served(self, store: str) -> Iterator[str]:
        """Its address, on a port that was free."""
        port = free_port()
        words = ["serve", "-m", MODEL, "-p", str(port), "--env-manager", "local"]
        process = subprocess.Popen(
            [self._python, "-m", "mlflow", "models", *words],
            cwd=self._folder,
            env={**self._environ(), "MLFLOW_TRACKING_URI": store},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, 15)
            process.wait()


def answered(address: str, rows: Answers) -> Answers:
    """As soon as there is an answer. Raises TimeoutError."""
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        try:
            return ask(address, rows)
        except ConnectionError:
            time.sleep(0.1)
        except OSError as error:  # urllib's, of a port that nobody listens at yet
            if getattr(error, "code", None) is not None:
                raise
            time.sleep(0.1)
    raise TimeoutError(f"no answer within {SECONDS:.0f} s")


def ask(address: str, rows: Answers) -> Answers:
    body = json.dumps({"dataframe_records": rows}).encode()
    request = Request(f"{address}/invocations", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return list(json.loads(answer.read())["predictions"])


def compared(served: Answers, own: Answers) -> tuple[int, float]:
    """In how many rows the labels are the same, and the largest difference of a probability."""
    pairs = list(zip(served, own, strict=True))
    names = [name for name in own[0] if name != "prediction"]
    n_alike = sum(str(there["prediction"]) == here["prediction"] for there, here in pairs)
    return n_alike, max(abs(there[name] - here[name]) for there, here in pairs for name in names)


def processes_in(folder: Path) -> list[str]:
    """Those that were begun in the folder and still run a while after they were asked to end."""
    begun = time.monotonic()
    while found := list(_processes_in(folder)):
        if time.monotonic() - begun > SECONDS:
            break
        time.sleep(0.1)
    return found


def _processes_in(folder: Path) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = process.joinpath("cwd").readlink()
            words = process.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if where.is_relative_to(folder) or str(folder) in words:
            yield f"{process.name} {words}"


def report(seconds: dict[str, float], n_rows: int, n_alike: int, difference: float) -> None:
    say("| | seconds |\n|---|---|")
    for what, took in seconds.items():
        say(f"| {what} | {took:.1f} |")
    say(
        f"\nNeither {' nor '.join(ABSENT)} can be imported there. Labels: {n_alike} of {n_rows} "
        f"the same; largest difference of a probability: {difference:.1g}. No process is left."
    )


if __name__ == "__main__":
    sys.exit(main())
