"""How many small trials share a GPU: as the governor finds it, against 1 to 8 at once.

Whole sweeps of the same trials, whose kernels leave most of a GPU idle. Each has its share of the
time that is left, and is killed after it; its rate is of the trials that finished. See gpu.md.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from gpu_machine import Bench, opened, parser, table, write
from gpu_sweeps import Ran, sweep

HEAD = ("at once", "finished", "s", "trials per minute", "at once, median", "ended early")
GOVERNED = "governor"


def measure(bench: Bench, folder: Path, most: int | None, seconds: float, words: list[str]) -> Ran:
    """`most`: None for the governor."""
    limit = [] if most is None else [f"admission.max_concurrent_trials={most}"]
    name = GOVERNED if most is None else f"at-once-{most}"
    memory = "admission.request=1GiB" if bench.kind != "cpu" else "admission.request=300MiB"
    return sweep(bench, folder, name, "small_steps", memory, *limit, *words, seconds=seconds)


def cells(name: str, ran: Ran) -> tuple[object, ...]:
    seconds, rate = ran.seconds, ran.per_minute
    return (
        name,
        ran.n_finished,
        None if seconds is None else f"{seconds:.0f}",
        None if rate is None else f"{rate:.1f}",
        ran.at_once,
        ran.trouble,
    )


def verdict(found: dict[int | None, Ran]) -> str:
    """The best fixed number's rate against the governor's, as makespans would compare."""
    rates = {n: ran.per_minute for n, ran in found.items() if n is not None and ran.per_minute}
    governed = found[None].per_minute
    if not rates or not governed:
        return "Nothing to compare."
    best = max(rates, key=lambda n: rates[n] or 0.0)
    ratio = (rates[best] or 0.0) / governed
    return f"Best fixed number: {best}. Governor / best, by time: {ratio:.2f} (to reach: 1.10)."


def main() -> None:
    arguments = parser(__doc__, "cpu", "stub")
    arguments.add_argument("--trials", type=int, default=16)
    arguments.add_argument("--steps", type=int, default=8000, help="of each trial")
    arguments.add_argument("--width", type=int, default=512)
    arguments.add_argument("--numbers", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8])
    args = arguments.parse_args()
    until = time.monotonic() + args.budget_seconds
    space = f"space={{width: {args.width}, n_steps: {args.steps}}}"
    words = [f"study.n_trials={args.trials}", space]
    found: dict[int | None, Ran] = {}
    with opened(args.device) as bench, tempfile.TemporaryDirectory() as folder:
        numbers = [None, *args.numbers]
        for done, most in enumerate(numbers):
            share = (until - time.monotonic()) / (len(numbers) - done)
            # One at a time takes the longest by far; what others do not need is left for it.
            seconds = max(1.0, min(2 * share, until - time.monotonic()))
            found[most] = measure(bench, Path(folder), most, seconds, words)
        rows = {(GOVERNED if n is None else str(n)): ran for n, ran in found.items()}
        table(HEAD, [cells(name, ran) for name, ran in rows.items()])
        write(f"\n{verdict(found)}")


if __name__ == "__main__":
    main()
