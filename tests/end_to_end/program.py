"""`python -m automl` as a user runs it: a process in a folder, its words, its exit code."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from automl.cli import main
from tests.warm import FORKED, usual_environment
from tests.warm_server import STOPPED

ROOT = Path(__file__).parents[2]
OBJECTIVES = "tests.end_to_end.objectives"
PATIENCE_SECONDS = 300.0
"""For what a sweep does within seconds, on a machine that is busy with other things."""


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return once the condition holds; it is looked at again and again. Raises TimeoutError.

    Looking takes a fifth of a core at most: what is waited for may need the rest.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    begun = time.thread_time()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {PATIENCE_SECONDS:.0f} s: {what}")
        time.sleep(max(0.005, 4 * (time.thread_time() - begun)))
        begun = time.thread_time()


def objective_words(name: str) -> tuple[str, ...]:
    """The words that make a function of `objectives.py` the objective, over an empty space."""
    return ("objective=python", f"objective.target={OBJECTIVES}:{name}", "space={x: 1}")


@dataclass(frozen=True)
class Done:
    """A program that has ended."""

    code: int
    stdout: str
    stderr: str


class Running:
    """A program that may still run, in a session of its own; what it says goes to two files."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        n_before = len(list(folder.glob("*.stdout")))
        self._stdout, self._stderr = (
            folder / f"program-{n_before}.{name}" for name in ("stdout", "stderr")
        )
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    @property
    def stdout(self) -> str:
        return self._stdout.read_text()

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    def signal(self, number: signal.Signals) -> None:
        """To the program alone, as `kill` does; who is stopped does nothing more by then."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        """`kill -9`, and its end."""
        self.process.kill()
        self.process.wait()

    def wait(self) -> Done:
        """Until it ends by itself. Raises subprocess.TimeoutExpired."""
        code = self.process.wait(PATIENCE_SECONDS)
        return Done(code, self.stdout, self.stderr)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Return once the condition holds; the program must live until then."""

        def holds() -> bool:
            if condition():
                return True
            ended = self.process.poll()
            assert ended is None, f"exit {ended} before: {what}\n{self.stdout}\n{self.stderr}"
            return False

        wait_until(holds, what)

    def end(self) -> None:
        """Whatever is left of it and of its process group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Program:
    """Starts programs in one folder, and ends those that a test left running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = usual_environment()
        self._started: list[Running] = []

    def start(self, *words: str) -> Running:
        """`python -m automl WORDS`; forked, where it may be (see `warm_start.py`)."""
        return self._started_in({**self.environment, FORKED: "1"}, "-m", "automl", *words)

    def start_stopped(self, *words: str) -> Running:
        """The same, forked; it does nothing before it gets SIGCONT."""
        environment = {**self.environment, FORKED: "1", STOPPED: "1"}
        return self._started_in(environment, "-m", "automl", *words)

    def start_module(self, module: str, *words: str) -> Running:
        return self.start_python("-m", module, *words)

    def start_script(self, source: str, *words: str) -> Running:
        """A script of the user's, `script.py` in the folder."""
        (self.folder / "script.py").write_text(source)
        return self.start_python("script.py", *words)

    def start_python(self, *words: str) -> Running:
        """`python WORDS`."""
        return self._started_in(self.environment, *words)

    def _started_in(self, environment: Mapping[str, str], *words: str) -> Running:
        running = Running([sys.executable, *words], self.folder, environment)
        self._started.append(running)
        return running

    def run(self, *words: str) -> Done:
        """`python -m automl WORDS`, from a start of its own to its end."""
        return self.start_module("automl", *words).wait()

    def call(self, *words: str) -> Done:
        """The same command line in this process, which has torch and MLflow loaded already.

        For what does not ask for a process of its own; it has this one's environment.
        """
        out, err = io.StringIO(), io.StringIO()
        with chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        return Done(code, out.getvalue(), err.getvalue())

    def end_all(self) -> None:
        for running in self._started:
            running.end()
