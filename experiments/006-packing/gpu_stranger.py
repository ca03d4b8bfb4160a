"""Another process that takes memory of a GPU and gives it back, until it is ended.

It leaves the last GiB to others, and takes nothing where they were faster. Each change is a line in
`--log`: the time and the bytes that it holds from then on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from gpu_machine import GIB, STUB_GPU, Bench, stub_folder

from tests.nvml_stub.stub import STATE_VARIABLE, NvmlStub

LEFT_BYTES = GIB
HOLDS_SECONDS, RESTS_SECONDS = (4.0, 15.0), (3.0, 10.0)
LEAST, MOST = 0.1, 0.4
"""Of the device."""


@contextmanager
def breathing(bench: Bench, log: Path) -> Iterator[None]:
    """One beside what is done in the block."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": bench.read().address.uuid}
    command = [sys.executable, __file__, "--log", str(log)]
    process = subprocess.Popen(command, env=environment)
    try:
        yield
        assert process.poll() is None, f"the stranger ended by itself: {process.returncode}"
    finally:
        process.kill()
        process.wait()


def held(log: Path) -> list[tuple[float, int]]:
    """What was told: from when on, and bytes."""
    pairs = (line.split() for line in log.read_text().splitlines())
    return [(float(when), int(n)) for when, n in pairs]


def breathe(
    hold: Callable[[int], int], look: Callable[[], tuple[int, int]], log: Path, random: Random
) -> None:
    """Without end. `look` gives what is free, and all; `hold` makes it hold so much, and says
    what it got."""
    while True:
        free, total = look()
        size = min(int(random.uniform(LEAST, MOST) * total), free - LEFT_BYTES)
        for n_bytes, between in ((max(0, size), HOLDS_SECONDS), (0, RESTS_SECONDS)):
            got = hold(n_bytes)
            with log.open("a") as file:
                file.write(f"{time.time()} {got}\n")
            time.sleep(random.uniform(*between))


def _on_gpu() -> tuple[Callable[[int], int], Callable[[], tuple[int, int]]]:
    import torch

    kept: list[torch.Tensor] = []

    def hold(n_bytes: int) -> int:
        kept.clear()
        torch.cuda.empty_cache()
        try:
            kept.append(torch.empty(n_bytes, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            return 0  # a trial took it meanwhile
        return n_bytes

    return hold, torch.cuda.mem_get_info


def _on_stub() -> tuple[Callable[[int], int], Callable[[], tuple[int, int]]]:
    gpu = NvmlStub(stub_folder(), Path(os.environ[STATE_VARIABLE])).gpu(STUB_GPU)

    def hold(n_bytes: int) -> int:
        gpu.host([(os.getpid(), n_bytes)])
        gpu.use(n_bytes)
        return n_bytes

    return hold, lambda: (gpu.free_bytes, gpu.total_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    hold, look = _on_stub() if STATE_VARIABLE in os.environ else _on_gpu()
    breathe(hold, look, args.log, Random(args.seed))


if __name__ == "__main__":
    main()
