"""Says how often the time left that a sweep shows is right within a factor of two.

$ python experiments/027-time-left/estimates.py

Replays the sweeps of `sweeps.json` (`record.py`), with a look each second as the display has it.
Recorded seconds count as `SCALE` seconds, since trials of real sweeps take longer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from automl.terminal.time_left import TimeLeft

SCALE = 10.0
FINAL = ("finished", "pruned", "failed")


def looks(sweep: Mapping[str, Any]) -> Iterator[tuple[float, int, int, int, int]]:
    """Yield seconds, trials that ended, paused ones, running ones and the true seconds left."""
    events = [(SCALE * seconds, trial, state) for seconds, trial, state in sweep["events"]]
    first, end = events[0][0], events[-1][0]
    states: dict[int, str] = {}
    now, todo = first, [*events]
    while now < end:
        while todo and todo[0][0] <= now:
            _, trial, state = todo.pop(0)
            states[trial] = "running" if state == "started" else state
        kinds = [*states.values()]
        n_ended = sum(kind in FINAL for kind in kinds)
        yield now, n_ended, kinds.count("paused"), kinds.count("running"), end - now
        now += 1.0


def judge(sweep: Mapping[str, Any]) -> Mapping[str, tuple[int, int, int, int]]:
    """Return, for the estimate now and the former one: looks, estimates, right ones, rises."""
    found = {"now": [0, 0, 0, 0], "before": [0, 0, 0, 0]}
    time_left = TimeLeft()
    n_trials = sweep["n_trials"]
    last: dict[str, float | None] = {"now": None, "before": None}
    n_last = (0, 0)
    for now, n_ended, n_paused, n_running, true in looks(sweep):
        shown = {
            "now": time_left.look(
                now,
                n_ended=n_ended,
                n_paused=n_paused,
                n_running=n_running,
                n_trials=n_trials,
                is_held=False,
            ),
            "before": now / n_ended * (n_trials - n_ended) if n_ended else None,
        }
        for name, estimate in shown.items():
            counts, before = found[name], last[name]
            counts[0] += 1
            if estimate is not None:
                counts[1] += 1
                counts[2] += true / 2 <= estimate <= 2 * true or abs(estimate - true) < 2
                counts[3] += (
                    before is not None and estimate > before and (n_ended, n_paused) == n_last
                )
            last[name] = estimate
        n_last = n_ended, n_paused
    return {name: (a, b, c, d) for name, (a, b, c, d) in found.items()}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "sweeps.json"
    sums = {"now": [0, 0, 0, 0], "before": [0, 0, 0, 0]}
    say("sweep                                            now: shown right  before: shown right")
    for sweep in json.loads(path.read_text()):
        found = judge(sweep)
        how = ", ".join(f"{key} {value}" for key, value in sweep["how"].items())
        cells = []
        for name, (n, n_shown, n_right, n_rises) in found.items():
            for place, count in enumerate((n, n_shown, n_right, n_rises)):
                sums[name][place] += count
            cells.append(f"{n_shown / n:8.0%} {n_right / max(1, n_shown):6.0%}")
        say(f"{how:48} {'     '.join(cells)}")
    for name, (n, n_shown, n_right, n_rises) in sums.items():
        say(
            f"{name}: an estimate at {n_shown / n:.0%} of {n} looks, {n_right / n_shown:.0%} of "
            f"them within a factor of two; {n_rises} rises while nothing ended"
        )


if __name__ == "__main__":
    main()
