"""The server that worker processes are forked from: it is killed, or has no room for sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow
# Every Python process imports it first: here the fork server dies when somebody has called it.
SITECUSTOMIZE = """
import os, re, select, signal, sys
from pathlib import Path

server = re.search(r"multiprocessing.forkserver import main; main\\((\\d+)", sys.orig_argv[-1])
spared = Path({spared!r})
if server and not spared.exists():
    if {once}:
        spared.touch()
    select.select([int(server.group(1))], [], [])
    os.kill(os.getpid(), signal.SIGKILL)
"""
WORDS = ("study.name=forked", "study.n_trials=1", "devices.only=cpu", *objective_words("counts"))


def kill_servers(program: Program, *, once: bool) -> None:
    spared = program.folder / "spared"
    hook = SITECUSTOMIZE.format(spared=str(spared), once=once)
    (program.folder / "hook").mkdir()
    (program.folder / "hook" / "sitecustomize.py").write_text(hook)
    environment = program.environment
    environment["PYTHONPATH"] = f"{program.folder / 'hook'}:{environment['PYTHONPATH']}"


def test_a_fork_server_that_was_killed_is_started_anew(program: Program) -> None:
    kill_servers(program, once=True)
    done = program.run(*WORDS)
    assert (done.code, done.stderr) == (0, "")
    assert set(Records(program.folder, "forked").outcomes()) == {0}


def test_one_that_is_killed_each_time_is_said_with_the_remedy(program: Program) -> None:
    kill_servers(program, once=False)
    refused = program.run(*WORDS)
    assert refused.code == 1
    assert refused.stderr.startswith("automl: ")
    assert "execution=inline" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not Path(program.folder, "studies").exists()


def test_a_long_tmpdir_is_followed_though_no_socket_can_lie_there(
    program: Program, tmp_path: Path
) -> None:
    """As Slurm gives one to each job."""
    (long := tmp_path / ("of-a-job-" * 12)).mkdir()
    program.environment["TMPDIR"] = str(long)
    done = program.run(
        *("study.name=long", "study.n_trials=1", "execution=workers", "devices.only=cpu"),
        *("tracking.uri=none", *objective_words("says_where_it_may_write")),
    )
    assert (done.code, done.stderr) == (0, "")
    (said,) = (program.folder / "studies" / "long").glob("checkpoints/*/temporary")
    assert said.read_text() == str(long)
