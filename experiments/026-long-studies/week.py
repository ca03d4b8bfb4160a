"""Lets a study of 10,000 trials live through a week in virtual time, and says what it holds.

    python experiments/026-long-studies/week.py --n 10000

The sweeps are killed at random times. Twice the disk is nearly full for hours, MLflow is away for a
day, and the wall clock is set forward and back. Each row is a day: trials that ended, memory, open
files and threads of the process, bytes of `events.log` for a trial. The second table has the
package's classes of which there are more objects at the end than after the first hour. It fails if
a trial is lost, trained twice, or has two runs. See README.md.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.running.loop.long_week import (
    DAY,
    HOUR,
    WeekPlan,
    grown_objects,
    live_through,
    random_times,
)

WEEK = 7 * DAY
AT_ONCE = 4


def say(*cells: object) -> None:
    sys.stdout.write("| " + " | ".join(map(str, cells)) + " |\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    away = 12 * HOUR  # in which no trial starts, since the disk is nearly full
    week = WeekPlan(
        n_trials=args.n,
        trial_seconds=AT_ONCE * (WEEK - away) / args.n * 0.97,
        kills=random_times(args.kills, 0.9 * WEEK, args.seed),
        disk_full=[(1.3 * DAY, 1.3 * DAY + away / 2), (5.2 * DAY, 5.2 * DAY + away / 2)],
        mlflow_away=[(3 * DAY, 4 * DAY)],
        clock_changes=[(0.7 * DAY, HOUR), (2.5 * DAY, -3 * HOUR), (4.6 * DAY, 2 * HOUR)],
    )
    began, began_cpu = time.monotonic(), time.process_time()
    with TemporaryDirectory() as temporary:
        held = live_through(week, Path(temporary))
    say("hours", "trials", "process, MB", "files", "threads", "log, bytes a trial")
    say(*["---"] * 6)
    by_day = [held[0]] + [
        h for h, later in itertools.pairwise(held) if h.seconds // DAY < later.seconds // DAY
    ]
    for now in (*by_day, held[-1]):
        say(
            f"{now.seconds / HOUR:.0f}",
            f"{now.n_ended:,}",
            f"{now.memory_bytes / 1e6:.0f}",
            now.n_files,
            now.n_threads,
            f"{now.log_bytes / max(1, now.n_ended):.0f}",
        )
    say("objects", "first hour", "end")
    say("---", "---", "---")
    for name, before, after in grown_objects(held[0], held[-1], more_than=50):
        say(name, f"{before:,}", f"{after:,}")
    say(
        f"{held[-1].seconds / (time.monotonic() - began):,.0f} times its speed",
        f"CPU {time.process_time() - began_cpu:.0f} s",
        f"{args.kills} kills",
    )


if __name__ == "__main__":
    main()
