"""Has a study's page made again and again while its sweep runs, by the process `page_process.py`.

The sweep's own threads make no page: they start the process, and end it.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

from automl.running.features.feature import SweepEnding, SweepFeature, SweepSite

MIN_INTERVAL_SECONDS = 10.0
"""Seconds from one page to the next, and before the first: a shorter sweep has only its last."""
MAX_CPU_FRACTION = 0.015
"""Fraction of the time that passes which pages may take, in CPU seconds: a sweep that ends in the
middle of a pause has spent up to 2 %."""
THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables by which NumPy computes in one thread."""

logger = logging.getLogger(__name__)


def interval_seconds(cost_seconds: float) -> float:
    """Return the seconds from one page to the next, if a page costs `cost_seconds` of CPU time."""
    return max(MIN_INTERVAL_SECONDS, cost_seconds / MAX_CPU_FRACTION)


class LivePage:
    """Keeps a study's page up to date while its sweep runs. It has to be closed."""

    def __init__(self, directory: Path, first_seconds: float = MIN_INTERVAL_SECONDS) -> None:
        """`first_seconds`: how long a sweep lasts before the process is started."""
        self._directory, self._folder = directory.absolute(), Path.cwd()
        self._first_seconds = first_seconds
        self._is_over = threading.Event()
        self._errors: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starter = threading.Thread(target=self._start, name="live page", daemon=True)

    def begin(self) -> None:
        """Begin to wait for the time of the first page."""
        self._starter.start()

    def failure(self) -> str | None:
        """Return the last line of a process that ended by itself, which it should not."""
        if self._process is None or self._errors is None or self._process.poll() is None:
            return None
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]

    def stop(self) -> None:
        """End the process at once: the caller makes the last page."""
        process = self._started()
        if process is None:
            return
        if (why := self.failure()) is not None:
            logger.warning("the report's page was not made again while the sweep ran: %s", why)
        process.kill()
        process.communicate()
        self._process = None

    def close(self) -> None:
        """Leave the last page to the process, unless `stop` has ended it: the sweep broke off."""
        process, self._process = self._started(), None
        if process is not None and process.stdin is not None:
            process.stdin.close()
        if self._errors is not None:
            self._errors.close()

    def _started(self) -> subprocess.Popen[bytes] | None:
        self._is_over.set()
        if self._starter.ident is not None:
            self._starter.join()
        return self._process

    def _start(self) -> None:
        if self._is_over.wait(self._first_seconds):
            return
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
            self._process = self._spawn(self._errors)
        except OSError as error:
            logger.warning("the report's page is made at the sweep's end only: %s", error)

    def _spawn(self, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).parents[3])
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "automl.running.page_process", self._directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=self._folder,
            env={**os.environ, **dict.fromkeys(THREAD_SETTINGS, "1"), "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C in the terminal does not reach it
        )


class SweepLivePage(SweepFeature):
    """Keeps the page on the study up to date until the report's last page."""

    def __init__(self, page: LivePage) -> None:
        self._page = page

    @classmethod
    def make(cls, site: SweepSite) -> SweepLivePage | None:
        """Return the feature. None for a final training, which is part of another study's page."""
        return cls(LivePage(site.files.path)) if site.prepared().purpose.stands_alone else None

    def begin(self) -> None:
        self._page.begin()

    def end(self, ending: SweepEnding) -> None:
        self._page.stop()

    def close(self) -> None:
        self._page.close()
