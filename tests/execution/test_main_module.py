"""While children start the main module is unseen; afterwards it is what it was."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from automl.execution.worker_process import _main_module_hidden


def test_however_many_threads_start_children_it_is_itself_again() -> None:
    """The second waits for the first, or it would take what the first hides for what there was."""
    main = vars(sys.modules["__main__"])
    before = {name: main.get(name, "none") for name in ("__spec__", "__file__")}
    first_is_in, first_may_go = threading.Event(), threading.Event()

    def first() -> None:
        with _main_module_hidden():
            first_is_in.set()
            first_may_go.wait()

    def second() -> tuple[object, object]:
        first_is_in.wait()
        threading.Timer(0.05, first_may_go.set).start()
        with _main_module_hidden():
            assert first_may_go.is_set()
            return main["__spec__"], main.get("__file__")

    with ThreadPoolExecutor(2) as pool:
        pool.submit(first)
        assert pool.submit(second).result() == (None, None)
    assert {name: main.get(name, "none") for name in before} == before
