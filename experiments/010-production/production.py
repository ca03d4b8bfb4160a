"""What `export` and `predict` cost and keep; prints the tables of the README beside it."""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import automl
from automl.export.package import open_export_reader

HERE = Path(__file__).parent
N_NUMBERS, N_CATEGORIES = 6, 8
N_IN_A_TURN = 100
STUDIES = {
    "mlp, classes": ["study.name=classes", "data.path=label.csv", "data.target=label"],
    "mlp, values": ["study.name=values", "data.path=value.csv", "data.target=value"],
    "python, classes": [
        "study.name=own",
        "data.path=label.csv",
        "data.target=label",
        "model=python",
        f"model.target={HERE / 'own_network.py'}:build",
        "space={lr: 0.01, batch_size: 256}",
    ],
}
SWEEP = ("data=csv", "model=mlp", "study.n_trials=3", "training.epochs=3")
FORMATS = ("onnx", "torch", "aoti")
PLAIN = """
import sys, time
import pandas as pd
import automl
best, rows, scores = sys.argv[1:]
model = automl.load(best)
began = time.monotonic()
for i, chunk in enumerate(pd.read_csv(rows, chunksize=50_000)):
    chunk.assign(prediction=model.predict(chunk))[["prediction"]].to_csv(
        scores, mode="a", header=i == 0, index=False
    )
print(f"in {time.monotonic() - began:.1f} s")
"""

MEASURED = """
import os, sys
pid = os.fork()
if not pid:
    os.execv(sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(pid, 0)
print("used", used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process that starts the one to measure: a peak begins with that of who started it."""


def make_table(n_rows: int, seed: int) -> pd.DataFrame:
    """Six columns of numbers, eight of categories, holes in some, a label and a value."""
    rng = np.random.default_rng(seed)
    numbers = {f"n{i}": rng.normal(10**i, 10**i, n_rows).round(2) for i in range(N_NUMBERS)}
    texts = {
        f"c{i}": np.array([f"kind-{k}" for k in range(3 + 5 * i)])[
            rng.integers(0, 3 + 5 * i, n_rows)
        ]
        for i in range(N_CATEGORIES)
    }
    frame = pd.DataFrame({**numbers, **texts})
    score = (frame["n0"] - 1) + (frame["c0"] == "kind-1") + rng.normal(0, 0.5, n_rows)
    frame.loc[rng.random(n_rows) < 0.1, "n1"] = np.nan
    frame.loc[rng.random(n_rows) < 0.1, "c1"] = None
    frame["label"], frame["value"] = np.where(score > 0, "yes", "no"), 1000 + 50 * score
    return frame


def command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "automl", *words], check=True, capture_output=True, text=True
    )
    return done.stdout


def parity(studies: list[str], formats: list[str]) -> None:
    say("| study | format | odd rows | largest difference | labels | seconds of CPU |")
    say("|---|---|---|---|---|---|")
    for name in studies:
        for kind in formats:
            before = os.times()
            said = command("export", STUDIES[name][0], f"format={kind}")
            after = os.times()
            seconds = after[2] + after[3] - before[2] - before[3]
            found = re.search(r"(\d+) odd.*within (\S+), all labels the same", said, re.S)
            assert found is not None, said
            say(f"| {name} | {kind} | {found[1]} | {found[2]} | the same | {seconds:.0f} |")


def latency(frame: pd.DataFrame, best: str, n_calls: int) -> None:
    """One row at a time, the two taking turns of a hundred."""
    (folder,) = Path("studies/classes/exports").glob("*-onnx")
    reader, model = open_export_reader(folder), automl.load(best)
    rows = frame.drop(columns=["label", "value"]).head(200)
    dicts = rows.to_dict("records")
    frames = [rows.iloc[[i]] for i in range(len(rows))]
    seen: dict[str, list[tuple[float, float]]] = {"reader, dict": [], "automl.load, frame": []}
    for turn in range(n_calls // N_IN_A_TURN):
        places = [(turn * N_IN_A_TURN + i) % len(rows) for i in range(N_IN_A_TURN)]
        seen["reader, dict"] += [seconds_of(reader, dicts[place]) for place in places]
        seen["automl.load, frame"] += [seconds_of(model.predict, frames[p]) for p in places]
    assert all(reader(row) == model.predict(one)[0] for row, one in zip(dicts, frames, strict=True))
    say("| one row to a label | p50 µs | p99 µs | p50 µs of CPU | p99 µs of CPU |")
    say("|---|---|---|---|---|")
    for name, seconds in seen.items():
        wall, cpu = np.percentile(np.array(seconds) * 1e6, [50, 99], axis=0).T
        say(f"| {name} | {wall[0]:.0f} | {wall[1]:.0f} | {cpu[0]:.0f} | {cpu[1]:.0f} |")
    medians = [np.median(np.array(seconds), axis=0) for seconds in seen.values()]
    wall_ratio, cpu_ratio = medians[1] / medians[0]
    say(f"\nfaster by {wall_ratio:.1f}, in CPU time by {cpu_ratio:.1f} (medians)")


def seconds_of(call: Callable[[Any], object], given: Any) -> tuple[float, float]:
    """By the clock on the wall, and of CPU in this thread."""
    began, worked = time.perf_counter(), time.thread_time()
    call(given)
    return time.perf_counter() - began, time.thread_time() - worked


def scoring(frame: pd.DataFrame, best: str, n_rows: int, n_rounds: int) -> None:
    """The two taking turns, each a process of its own."""
    whole = pd.concat([frame] * -(-n_rows // len(frame)), ignore_index=True).head(n_rows)
    whole.to_csv("rows.csv", index=False)
    Path("plain.py").write_text(PLAIN)
    predict = ["-m", "automl", "predict", "study.name=classes", "table=rows.csv"]
    programs = {
        "plain loop": ["plain.py", best, "rows.csv", "plain.csv"],
        "predict": [*predict, "to=scores.csv"],
    }
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in programs}
    for _ in range(n_rounds):
        for name, words in programs.items():
            if name == "plain loop":  # it appends
                Path("plain.csv").unlink(missing_ok=True)
            seen[name].append(run_program(words))
    said = pd.read_csv("scores.csv")["prediction"]
    assert (said == pd.read_csv("plain.csv")["prediction"]).all()
    size = Path("rows.csv").stat().st_size
    say(f"| {n_rows:,} rows, {size / 2**20:.0f} MiB | loop, s | CPU of all, s | peak, MiB |")
    say("|---|---|---|---|")
    for name, runs in seen.items():
        loop, cpu, peak = (statistics.median(values) for values in zip(*runs, strict=True))
        say(f"| {name} | {loop:.1f} | {cpu:.1f} | {peak:.0f} |")
    pairs = zip(seen["plain loop"], seen["predict"], strict=True)
    ratios = [plain[0] / ours[0] for plain, ours in pairs]
    say(f"\nfaster by {statistics.median(ratios):.2f} (median of {n_rounds} pairs)")


def run_program(words: list[str]) -> tuple[float, float, float]:
    """Seconds of its loop as it says, CPU seconds and MiB of the whole process."""
    small = [sys.executable, "-S", "-c", MEASURED, sys.executable, *words]
    said = subprocess.run(small, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = re.search(r"in ([\d.]+) s.*^used ([\d.]+) (\d+)$", said, re.S | re.M)
    assert found is not None, said
    return float(found[1]), float(found[2]), int(found[3]) / 1024


def say(line: str = "") -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="of the table that is scored; 0: none is"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of predict and the plain loop")
    parser.add_argument("--calls", type=int, default=5000, help="with one row")
    parser.add_argument("--formats", nargs="*", default=list(FORMATS), choices=FORMATS)
    given = parser.parse_args()
    frame = make_table(20_000, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(HERE.parents[1])
        frame.drop(columns="value").to_csv("label.csv", index=False)
        frame.drop(columns="label").to_csv("value.csv", index=False)
        said = {name: command(*SWEEP, *words) for name, words in STUDIES.items()}
        found = re.search(r"best model: (\S+)", said["mlp, classes"])
        assert found is not None, said
        if given.formats:
            parity(list(STUDIES), given.formats)
            say()
            latency(frame, found[1], given.calls)
            say()
        if given.rows:
            scoring(frame, found[1], given.rows, given.rounds)


if __name__ == "__main__":
    main()
