"""Workers: what a trial changed is put back, and what cannot be ends the process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from automl.execution.executor import TrialFeed
from automl.trial import LOCAL_HOST, FinishedOutcome
from tests.execution.isolation.conftest import Trials
from tests.execution.supervised import wait_until
from tests.processes import is_running

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="seen through /proc")


def test_the_next_trial_meets_nothing_of_what_can_be_put_back(trials: Trials) -> None:
    pids = trials.run("look", "change_all", "look", "look")
    assert len(set(pids)) == 1, pids


def test_a_trial_that_failed_is_put_back_too(trials: Trials) -> None:
    first, failed, then = trials.run("look", "change_all_and_fail", "look")
    assert first == then
    assert failed == "ValueError: after it"


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("leave_thread", "thread tests.execution.isolation.objectives.wait_for_ever lives on"),
        pytest.param("leave_child", "was left behind, and killed: sleep 3601", marks=linux),
    ],
)
def test_what_cannot_be_put_back_ends_the_process_and_is_named_in_one_line(
    trials: Trials, act: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, changed, then, last = trials.run("nothing", act, "nothing", "nothing")
    assert first == changed != then == last, "the trial's result is kept"
    [message] = [record.getMessage() for record in caplog.records]
    assert "\n" not in message
    assert message.startswith(
        "a trial left its process changed, which is ended, and the next trial gets another: "
    )
    assert words in message
    assert not is_running(int(changed))


def test_a_process_that_waits_for_a_thread_of_the_users_is_not_waited_for(trials: Trials) -> None:
    begun = time.monotonic()
    trials.run("leave_thread")
    assert trials.run("nothing")
    assert time.monotonic() - begun < 60, "as long as the thread lives"


@pytest.mark.parametrize(
    "act",
    [
        pytest.param("use_libraries", marks=pytest.mark.slow),
        pytest.param("use_mlflow", marks=pytest.mark.slow),
        "use_joblib",
        pytest.param("use_compiler", marks=pytest.mark.slow),
        "drop_pools",
        "close_standard_streams",
        "load_what_cannot_be_pickled",
    ],
)
def test_what_libraries_keep_for_the_next_use_costs_no_process(
    trials: Trials, act: str, caplog: pytest.LogCaptureFixture
) -> None:
    pids = trials.run("nothing", act, act)
    assert len(set(pids)) == 1, [record.getMessage() for record in caplog.records]
    trials.executor.close()
    assert caplog.records == [], "nor is its end waited for"


@linux
@pytest.mark.parametrize("act", ["leave_child", "leave_session", "leave_orphan", "leave_fork"])
def test_processes_end_with_the_trial_that_left_them(trials: Trials, act: str) -> None:
    trials.run("nothing", act)
    assert not is_running(int(trials.printed(1)))


def test_a_trial_that_forks_and_returns_in_both_ends_once(trials: Trials, tmp_path: Path) -> None:
    forked, *others = trials.run("fork_and_return", *["nothing"] * 3)
    assert (tmp_path / "trial-00000" / "forked").exists()
    assert isinstance(forked, int)
    assert len({forked, *others}) <= 2, "the fork took no trial"


@linux
def test_what_a_fork_server_forked_for_a_trial_ends_with_it(trials: Trials) -> None:
    """The server itself is kept for the next use."""
    pids = trials.run("use_fork_server", "use_fork_server", "leave_to_fork_server")
    assert len(set(pids)) == 1
    assert not is_running(int(trials.printed(2)))


@linux
@pytest.mark.slow
def test_processes_end_with_a_trial_whose_time_is_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker's group is killed; this one has a group and a session of its own."""
    trials = Trials(tmp_path, timeout_seconds=5.0)
    with closing(trials.executor):
        [cause] = trials.run("hang_with_session")
    assert str(cause).startswith("exceeded execution.trial_timeout_seconds=5")
    assert wait_until(lambda: not is_running(int(trials.printed(0).split()[0])), 5)
    assert [record.getMessage() for record in caplog.records] == [
        "processes of a worker that was killed, too: sleep 3602"
    ]


@linux
def test_processes_end_with_a_trial_whose_process_was_killed(trials: Trials) -> None:
    [cause] = trials.run("die_with_session")
    assert "SIGKILL" in str(cause)
    assert wait_until(lambda: not is_running(int(trials.printed(0).split()[0])), 5)


def test_trials_of_one_execution_are_kept_apart_too(trials: Trials) -> None:
    """A function of the user's does not train in packs: one after another, in the same process."""
    specs = [trials.spec(act) for act in ("change_all", "look", "leave_thread", "look")]
    feed = TrialFeed(specs, lambda taken: None)
    ended = trials.execute(feed)
    assert [outcome.trial for outcome in ended] == [0, 1, 2]
    assert all(isinstance(outcome, FinishedOutcome) for outcome in ended)
    [rest] = trials.execute(feed)
    assert isinstance(rest, FinishedOutcome)
    assert isinstance(ended[0], FinishedOutcome)
    assert rest.value != ended[0].value, "in another process"


def _close(trials: Trials) -> None:
    trials.executor.close()


def _end_idle(trials: Trials) -> None:
    trials.executor.end_idle([LOCAL_HOST])


@pytest.mark.parametrize("end", [_close, _end_idle])
@pytest.mark.parametrize("act", ["leave_hook", "leave_broken_hook"])
def test_hooks_are_called_when_a_worker_ends(
    trials: Trials, tmp_path: Path, act: str, end: Callable[[Trials], None]
) -> None:
    [pid] = trials.run(act)
    note = tmp_path / "trial-00000" / "hook.txt"
    assert not note.exists(), "not with its trial"
    assert len(list(tmp_path.glob("automl-test-*"))) == 1
    end(trials)
    assert note.read_text() == "hook"
    assert list(tmp_path.glob("automl-test-*")) == [], "finalizers are hooks"
    assert not is_running(int(pid))


def test_hooks_are_called_when_a_worker_is_replaced(tmp_path: Path) -> None:
    trials = Trials(tmp_path, recycle_after_trials=1)
    with closing(trials.executor):
        trials.run("leave_hook")
        assert (tmp_path / "trial-00000" / "hook.txt").exists()


def test_hooks_are_called_in_a_process_that_ends_for_a_thread(
    trials: Trials, tmp_path: Path
) -> None:
    trials.run("leave_hook_and_thread")
    assert (tmp_path / "trial-00000" / "hook.txt").exists()


@pytest.mark.slow
def test_a_hook_that_never_returns_is_cut_short_which_is_said(
    trials: Trials, caplog: pytest.LogCaptureFixture
) -> None:
    [pid] = trials.run("leave_endless_hook")
    trials.executor.close()
    assert not is_running(int(pid))
    [message] = [record.getMessage() for record in caplog.records]
    assert "its atexit hooks included: killed" in message


@linux
def test_what_a_users_module_started_ends_with_the_worker_and_not_before(trials: Trials) -> None:
    trials.run("say_child_of_module", "leave_child", "say_child_of_module")
    spent, lives = int(trials.printed(0)), int(trials.printed(2))
    assert spent != lives
    assert not is_running(spent)
    assert is_running(lives)
    trials.executor.close()
    assert not is_running(lives)


def test_a_worker_calls_no_hook_of_the_server_that_it_was_forked_from(trials: Trials) -> None:
    trials.run("say_child_of_module")
    trials.executor.close()
    assert trials.printed(0).split()[1:] == []
