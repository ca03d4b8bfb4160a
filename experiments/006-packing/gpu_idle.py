"""Idle workers keep their CUDA contexts; then a trial comes that wants all but 1.5 GiB of the GPU.

One sweep: trials of many small sizes, side by side, and now and then a large one with the same
params each time: once it was measured, it asks for 1.05 times that, which is the GPU less 1.5 GiB.
Does the admission end the idle workers, and run it? Before them all counts what is free at the
start. See gpu.md.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpu_machine import GIB, MIB, Sample, opened, parser, table, watched, write
from gpu_sweeps import Ran, sweep

from automl.admission.requests import SEEN_PEAK_MARGIN
from automl.trial import FinishedOutcome, MemoryPeakMeasured

LEFT_BYTES = int(1.5 * GIB)
SEED = 3
"""With which the large trial comes three times or more among forty, first and last excepted."""
HEAD = ("large trial", "asked, GiB", "known by", "held, GiB", "processes before", "while it ran",
        "GPU empty before, s", "ended")  # fmt: skip


def rows(ran: Ran, samples: Sequence[Sample], large_mib: int) -> list[tuple[object, ...]]:
    """One for each start of a large trial."""
    found: list[tuple[object, ...]] = []
    for start in ran.starts:
        if start.params["mib"] != large_mib:
            continue
        end = min((o for o in ran.outcomes if o.trial == start.trial and o.time >= start.time),
                  key=lambda o: o.time, default=None)  # fmt: skip
        peaks = [
            e for e in ran.events if isinstance(e, MemoryPeakMeasured) and e.trial == start.trial
        ]
        asked = peaks[-1].predicted_bytes if peaks else None
        until = end.time if end is not None else float("inf")
        before = [s for s in samples if s.time <= start.time][-1:]
        during = [s for s in samples if start.time < s.time < until]
        ends = [o.time for o in ran.outcomes if o.time <= start.time]
        found.append(
            (
                start.trial,
                None if asked is None else f"{asked / GIB:.2f}",
                peaks[-1].source.value if peaks and peaks[-1].source else None,
                f"{peaks[-1].peak_bytes / GIB:.2f}" if peaks else None,
                len(before[0].processes) if before else None,
                _median_processes(during),
                f"{start.time - max(ends):.1f}" if ends else None,
                type(end).__name__ if end is not None else "not at all",
            )
        )
    return found


def _median_processes(samples: Sequence[Sample]) -> int | None:
    return statistics.median_low(len(s.processes) for s in samples) if samples else None


def words(small_mib: Sequence[int], large_mib: int, seconds: float, n_trials: int) -> list[str]:
    sizes = ", ".join(map(str, [*small_mib, large_mib]))
    return [
        f"study.n_trials={n_trials}",
        f"study.seed={SEED}",
        f"space={{mib: {{choices: [{sizes}]}}, seconds: {seconds}}}",
        "admission.max_concurrent_trials=9",
        "admission.lookahead=0",
    ]


def main() -> None:
    arguments = parser(__doc__, "cpu", "stub")
    arguments.add_argument("--trials", type=int, default=40)
    arguments.add_argument("--seconds", type=float, default=4.0, help="of each trial")
    args = arguments.parse_args()
    with opened(args.device) as bench, tempfile.TemporaryDirectory() as folder:
        free = bench.read().free_bytes if args.device == "cuda" else 2 * GIB
        large_mib = int((free - LEFT_BYTES) / SEEN_PEAK_MARGIN / MIB)
        small = [large_mib // 80 + n for n in range(9)]
        asked = words(small, large_mib, args.seconds, args.trials)
        with watched(bench) as samples:
            ran = sweep(bench, Path(folder), "idle", "fill", *asked, seconds=args.budget_seconds)
        table(HEAD, rows(ran, samples, large_mib))
        finished = {o.trial for o in ran.outcomes if isinstance(o, FinishedOutcome)}
        most = max((len(s.processes) for s in samples), default=0)
        write(
            f"\n{len(finished)} of {args.trials} finished, {len(ran.ran_out)} times one ran out of "
            f"memory, at most {most} processes on the GPU by NVML. {ran.trouble}"
        )


if __name__ == "__main__":
    main()
