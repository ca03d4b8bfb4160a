"""How fast a study of 10,000 trials in PostgreSQL opens and is asked: see README.md."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from automl.config import StudyConfig
from automl.record.event_log import encode_event
from automl.record.lease import this_holder
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.shared_record import SharedRecord
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.search_space import parse_space
from automl.search.shared_study import SharedStudy, open_shared_storage
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import FinishedOutcome, MetricsReported, TrialStarted
from tests.postgres import running_server

SPACE = {
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "dropout": {"low": 0.0, "high": 0.5},
    "depth": {"low": 2, "high": 8},
    "optimizer": {"choices": ["sgd", "adam"]},
}
SAMPLERS: Mapping[str, type[Sampler]] = {"random": IndependentSampler, "tpe": TPE}
IDENTITY: Mapping[str, Any] = {}
N_REPORTS = 5


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--trials", type=int, default=10_000)
    words.add_argument("--asks", type=int, default=200)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--ask", nargs=2, metavar=("URL", "SAMPLER"), help="what a process does")
    given = words.parse_args()
    if given.ask:
        ask(*given.ask, n_asks=given.asks)
        return
    with TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        (data := Path(folder, "data")).mkdir()
        with running_server(data, flushes=True) as server:
            url = server.url(server.new_database())
            fill(url, given.trials)
            for sampler, n_sweeps in (("random", 1), ("random", 3), ("tpe", 1)):
                rounds = [measure(url, sampler, n_sweeps, given.asks) for _ in range(given.rounds)]
                opening, asks, alone = (median(each) for each in zip(*rounds, strict=True))
                compared = f", {asks / alone:.2f} of the sampler alone" if alone else ""
                sys.stdout.write(
                    f"{sampler}, {n_sweeps} at once, median of {given.rounds}: "
                    f"opening {opening:.1f} s, {asks:.1f} asks a second{compared}\n"
                )


def fill(url: str, n_trials: int) -> None:
    """Finished trials of a sweep, in the tables as it would leave them."""
    lines, offset = list[tuple[int, str]](), 0
    with TemporaryDirectory() as folder, opened(url, Path(folder), "random") as study:
        draw = study._proposer.propose
        with Database(url) as database, database.transaction() as cursor:
            found = study_tables.find_study(cursor, "asked")
            assert found is not None
            study_tables.add_sweep(cursor, found.id, "filled", this_holder())
            for number in range(n_trials):
                params = draw(number)
                assert params is not None
                study_tables.claim_trial(
                    cursor, found.id, "filled", study_tables.StoredTrial(number, params)
                )
                events = [
                    TrialStarted(number, 1.0, params, "cpu"),
                    *(
                        MetricsReported(number, 1.0, n, {"val_loss": 1 / (1 + n)})
                        for n in range(N_REPORTS)
                    ),
                    FinishedOutcome(number, 2.0, sum(map(hash, params.values())) % 1000 / 1000),
                ]
                for event in events:
                    line = encode_event(event, 1)
                    offset += len(line)
                    lines.append((offset, line.decode().rstrip("\n")))
            for first in range(0, len(lines), 5_000):
                study_tables.add_events(cursor, found.id, "filled", lines[first : first + 5_000])
            study_tables.end_trials(cursor, found.id, range(n_trials))


@contextmanager
def opened(url: str, folder: Path, sampler: str) -> Iterator[SharedStudy]:
    config = StudyConfig(name="asked", dir=str(folder), storage=url, n_trials=1_000_000)
    shared = SharedRecord.open(config, folder)
    try:
        identity = StudyIdentity(IDENTITY, IDENTITY)
        rules = StudyRules(parse_space(SPACE), SAMPLERS[sampler](), NoPruner(), identity)
        study = SharedStudy.open(config, rules, folder, open_shared_storage(shared, "config"))

        def nothing(told: object) -> None:
            """Nothing is trained here."""

        shared.start(frozenset, nothing, nothing, nothing, nothing)
        yield study
    finally:
        shared.close()


def end_all(url: str) -> None:
    with Database(url) as database, database.transaction() as cursor:
        study_tables.end_trials(
            cursor, 1, [trial.number for trial in study_tables.open_trials(cursor, 1)]
        )


def measure(url: str, sampler: str, n_sweeps: int, n_asks: int) -> tuple[float, float, float]:
    """Sweeps that ask at the same time, each its part of the asks: seconds to open the study, asks
    a second, and proposals a second of the sampler alone (0.0: not measured)."""
    end_all(url)  # else what those before gave back would be taken over, and nothing be drawn
    command = [sys.executable, __file__, "--asks", str(n_asks // n_sweeps), "--ask", url, sampler]
    asking = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(n_sweeps)]
    figures = [process.communicate()[0].split() for process in asking]
    opening = max(float(seconds) for seconds, *_ in figures)
    begun, ended = min(float(f[1]) for f in figures), max(float(f[2]) for f in figures)
    n_asked = n_asks // n_sweeps * n_sweeps
    asks, alone = n_asked / (ended - begun), float(figures[0][3])
    beside = f", the sampler alone {alone:.1f}" if alone else ""
    sys.stdout.write(
        f"{sampler}, {n_sweeps} at once: opening {opening:.1f} s, {asks:.1f} asks a second"
        f"{beside}\n"
    )
    return opening, asks, alone


def ask(url: str, sampler: str, *, n_asks: int) -> None:
    begun = time.monotonic()
    with TemporaryDirectory() as folder, opened(url, Path(folder), sampler) as study:
        opening = time.monotonic() - begun
        study._proposer.propose(study.n_asked)  # what it loads does not count
        ready, alone_seconds = time.monotonic(), 0.0
        for _ in range(n_asks):
            if sampler != "random":  # by turns, since others share the cores
                drawn_from = time.monotonic()
                study._proposer.propose(study.n_asked)  # recorded nowhere
                alone_seconds += time.monotonic() - drawn_from
            assert study.ask() is not None
        ended = time.monotonic() - alone_seconds
    alone = n_asks / alone_seconds if alone_seconds else 0.0
    sys.stdout.write(f"{opening} {ready} {ended} {alone}\n")


if __name__ == "__main__":
    main()
