"""From a finished study of Adult to a served, registered model; prints the table of the README."""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

SWEEP = ("data=csv", "data.target=income", "study.name=adult")
ROW = {
    **{"age": 39, "workclass": "State-gov", "fnlwgt": 77516, "education": "Bachelors"},
    **{"education_num": 13, "marital_status": "Never-married", "occupation": None},
    **{"relationship": "Not-in-family", "race": "White", "sex": "Male", "capital_gain": 2174},
    **{"capital_loss": 0, "hours_per_week": "?", "native_country": "nowhere"},
}
_TABLES = {"path": "train", "test": "test"}
SECONDS = 120.0
"""For the server to answer."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with Adult's two tables")
    parser.add_argument("words", nargs="*", help="of the sweep besides, such as model=mlp")
    asked = parser.parse_args()
    data = asked.data.absolute()
    table, test = (f"data.{key}={data}/adult-{name}.csv" for key, name in _TABLES.items())
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
        automl = [sys.executable, "-m", "automl"]
        run([*automl, *SWEEP, table, test, *asked.words], folder, environ)
        released, cpu = run([*automl, "release", "study.name=adult"], folder, environ, show=True)
        served, answer = serve(folder, environ)
    say("\n| from a finished study | seconds | of CPU |\n|---|---|---|")
    say(f"| `release` | {released:.0f} | {cpu:.0f} |")
    say(f"| `mlflow models serve`, until it answers | {served:.0f} | |")
    say(f"| together | {released + served:.0f} | |")
    say(f"\n{json.dumps(answer)}")
    return 0


def run(
    words: list[str], folder: str, environ: dict[str, str], *, show: bool = False
) -> tuple[float, float]:
    """Seconds, and those of CPU."""
    begun, used = time.monotonic(), cpu_seconds()
    out = None if show else subprocess.DEVNULL
    subprocess.run(words, cwd=folder, env=environ, stdout=out, check=True)
    return time.monotonic() - begun, cpu_seconds() - used


def cpu_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def serve(folder: str, environ: dict[str, str]) -> tuple[float, object]:
    """Seconds until a row is answered, and the answer."""
    port = free_port()
    request = Request(
        f"http://127.0.0.1:{port}/invocations",
        json.dumps({"dataframe_records": [ROW]}).encode(),
        {"Content-Type": "application/json"},
    )
    begun = time.monotonic()
    with server(port, folder, environ):
        while time.monotonic() - begun < SECONDS:
            try:
                with urlopen(request, timeout=10) as answer:
                    return time.monotonic() - begun, json.loads(answer.read())
            except OSError:
                time.sleep(0.1)
    raise TimeoutError(f"no answer within {SECONDS:.0f} s")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def server(port: int, folder: str, environ: dict[str, str]) -> Iterator[None]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    words = ["serve", "-m", "models:/adult@champion", "-p", str(port), "--env-manager", "local"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "models", *words],
        cwd=folder,
        env={**environ, "PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, 15)
        process.wait()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
