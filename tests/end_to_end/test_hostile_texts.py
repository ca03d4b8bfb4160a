"""What a stranger's words do to a sweep: long ones, unspeakable ones, and those with secrets."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from contextlib import suppress

import psutil
import pytest

from automl.trial import FailedOutcome, MetricsReported
from tests.end_to_end.hostile import LONG_WORD, SECRETS, WORDS
from tests.end_to_end.program import Done, Program
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow


def hostile_words(name: str) -> tuple[str, ...]:
    return (
        "objective=python",
        f"objective.target=tests.end_to_end.hostile:{name}",
        "devices.only=cpu",
    )


def test_a_long_word_holds_nobody_up(program: Program) -> None:
    records = Records(program.folder, "long")
    two = ("study.n_trials=2", "admission.max_concurrent_trials=2", "space={x: 1}")
    first = program.start("study.name=long", *two, *hostile_words("one_raises_a_long_word"))

    def n_reports() -> int:
        return sum(isinstance(event, MetricsReported) for event in records.of_trial(0))

    first.wait_until(lambda: 1 in records.outcomes(), "the failure")
    n_before = n_reports()
    first.wait_until(lambda: n_reports() > n_before, "a report of its neighbour")
    first.signal(signal.SIGINT)
    assert first.wait().code == 130
    failed = records.outcomes()[1]
    assert isinstance(failed, FailedOutcome)
    assert failed.cause.startswith("ValueError: bad reply: ab01ab01")
    assert "[cut, 400" in failed.cause, "how long it was is said"
    assert len(failed.cause) < 2_000
    assert len(failed.details) < 50_000

    # As a version that did not cut wrote it, and nothing delivered yet.
    log = records.path / "events.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if line["event"] == "Failed":
            line |= {"cause": f"a=b@c {LONG_WORD}", "details": f"a=b@c {LONG_WORD}"}
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (records.path / "events.delivered").unlink()
    resumed = program.call("resume", "study.name=long")
    assert resumed.code == 0, resumed.stderr
    assert "long: 1 finished, 1 failed" in resumed.stdout
    assert records.trial_runs()[1].data.tags["automl.cause"].startswith("a=b@c ab01")


# --- words that cannot be printed, and words that must not be -------------------------------------


@pytest.fixture(scope="module")
def said(module_program: Program) -> Done:
    """A sweep in a terminal that knows ASCII alone, whose trials fail with all kinds of words."""
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    module_program.environment.update(ascii_alone)
    module_program.environment.pop(
        "PYTHONUNBUFFERED", None
    )  # what a trial printed may still be in memory
    module_program.environment.update(SECRETS)
    running = module_program.start_module(
        "automl",
        *(
            "study.name=odd",
            "sampler=grid",
            f"space={{how: {{choices: [well,{','.join(WORDS)}]}}}}",
        ),
        *("admission.max_concurrent_trials=1", *hostile_words("says")),
    )
    with (module_program.folder / "titles").open("a") as titles:
        while running.process.poll() is None:  # a look takes as long as a pause would
            titles.write("".join(map(title, descendants(running.process.pid))))
    return running.wait()


def descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def title(process: psutil.Process) -> str:
    """Return what `ps` shows of a process."""
    with suppress(psutil.Error):
        return f"{process.name()} {process.cmdline()}\n"
    return ""


@pytest.fixture(scope="module")
def status(module_program: Program, said: Done) -> Done:
    """What another process says of it, in another terminal that knows no more."""
    module_program.environment["PYTHONIOENCODING"] = "ascii"
    return module_program.run("status", "study.name=odd")


@pytest.fixture(scope="module")
def tags(module_program: Program, said: Done) -> dict[str, Mapping[str, str]]:
    """What MLflow was told of each trial, by how it ended."""
    runs = Records(module_program.folder, "odd").trial_runs().values()
    return {run.data.params["how"]: run.data.tags for run in runs}


def test_words_that_cannot_be_printed_end_nothing(
    said: Done, status: Done, tags: Mapping[str, Mapping[str, str]], module_program: Program
) -> None:
    assert (said.code, status.code) == (0, 0), said.stderr + status.stderr
    assert "Traceback" not in said.stderr + status.stderr
    assert "odd: 1 finished, 7 failed" in said.stdout
    assert "failed: RuntimeError: the tr?ne ran out" in said.stdout
    assert tags["umlaut"]["automl.cause"] == "RuntimeError: the träne ran out"
    assert tags["surrogate"]["automl.cause"].startswith("RuntimeError: odd: ")
    assert tags["surrogate"]["automl.state"] == "failed"
    assert "; MLflow: " not in said.stdout, "it took all of it"
    assert not re.search("[\x00-\x08\x0b-\x1f]", said.stdout), "nothing that moves a cursor"
    assert "owned" in tags["escape"]["automl.cause"]
    (module_program.folder / "studies" / "odd" / "sweep.log").read_text(encoding="utf-8")


def test_no_credential_of_an_exception_is_shown(
    said: Done, status: Done, tags: Mapping[str, Mapping[str, str]], module_program: Program
) -> None:
    assert "failed: RuntimeError: cannot reach postgresql://ann:***@db/x" in said.stdout
    assert "password=***, token: ***, MY_KEY=***, Authorization: Bearer ***" in said.stdout
    assert "password=***, token: ***, MY_KEY=***" in tags["names"]["automl.cause"]
    told = [said.stdout, said.stderr, status.stdout, status.stderr, str(tags)]
    assert "s3cret" not in "".join(told)


def test_no_secret_of_the_environment_is_in_any_file_database_or_title(
    said: Done, status: Done, module_program: Program
) -> None:
    assert "called with {'MLFLOW_TRACKING_PASSWORD': '***'" in said.stdout
    files = [path for path in module_program.folder.rglob("*") if path.is_file()]
    assert {"mlflow.db", "titles", "events.log", "journal.log"} <= {path.name for path in files}
    assert (module_program.folder / "titles").read_text().count("automl") > 2
    assert [path for path in files if b"s3cret" in path.read_bytes()] == []


def test_the_log_of_a_failed_trial_ends_with_its_traceback(
    said: Done, module_program: Program
) -> None:
    (log,) = module_program.folder.glob("studies/odd/logs/trial-00001.log")
    lines = log.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "trial 1 begins"
    assert "Traceback (most recent call last):" in lines
    assert lines[-1].startswith("RuntimeError: ")
    assert "raise RuntimeError(" in "".join(lines)


def test_failures_are_listed_by_cause(said: Done, status: Done) -> None:
    for shown in (said.stdout, status.stdout):
        line = next(line for line in shown.splitlines() if line.startswith("  2 times"))
        assert "RuntimeError: the tr?ne ran out" in line
        assert re.search(r"first trial \d, see studies/odd/logs/trial-0000\d.log", line)
        assert shown.count("  1 time ") == 4
        assert "and 1 more of other causes" in shown
