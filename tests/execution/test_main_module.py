"""While children start the main module is unseen; afterwards it is what it was."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from automl.execution.process import _unseen_main


def test_however_many_threads_start_children_it_is_itself_again() -> None:
    main = vars(sys.modules["__main__"])
    before = {name: main.get(name, "none") for name in ("__spec__", "__file__")}
    together = threading.Barrier(4)

    def start() -> list[object]:
        together.wait()
        seen = []
        for _ in range(50):
            with _unseen_main():
                time.sleep(1e-4)
                seen += [main["__spec__"], main.get("__file__")]
        return seen

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that they meet between any two lines
    try:
        with ThreadPoolExecutor(4) as pool:
            seen = [pool.submit(start) for _ in range(4)]
    finally:
        sys.setswitchinterval(interval)
    assert {value for future in seen for value in future.result()} == {None}
    assert {name: main.get(name, "none") for name in before} == before
