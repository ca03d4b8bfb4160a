"""`enqueue`, `stop`, `pause`, `ask` and `tell`: ask the sweep that works on a study, and print its
answer.

Where no sweep works, `ask` and `tell` open the study themselves.

`resume` lets a paused sweep go on by the same way. What a sweep does with a request is in
`running/trials/steering.py`.
"""

from __future__ import annotations

import csv
import getpass
import json
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import fetch_shared_study, open_requests
from automl.config import Config, StudyConfig
from automl.config.command_arguments import (
    AskArguments,
    EnqueueArguments,
    StopArguments,
    TellArguments,
    ToldState,
)
from automl.errors import AutoMLError, ConfigError, StudyInUseError
from automl.record.studies import (
    existing_studies_text,
    find_study,
    read_study,
    study_path,
    suspended_holder,
    unreadable_text,
)
from automl.record.study_directory import holding_for, study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.study_requests import FolderRequestQueue, RequestAnswer, StudyRequest
from automl.record.texts import say_on_stdout
from automl.running.prepare.identity_settings import flat_settings
from automl.running.prepare.resume_command import resume_command_from_settings
from automl.terminal.machine_output import write_answer

OUTSIDE_SECONDS = 30.0
"""How long `ask` and `tell` wait for whoever holds the study. A sweep answers in half a second, and
several `ask` commands without a sweep wait for each other."""
ANSWER_SECONDS = 5.0
"""A sweep looks for requests four times a second, in a database once; it may be busy with a sampler
or a slow disk."""


def enqueue(call: CommandCall) -> int:
    """Have the study try the points of `params` and `from`. Raises AutoMLError."""
    config, given = call.config, call.typed_arguments(EnqueueArguments)
    points = [dict(given.params)] if given.params else []
    points += [] if given.from_ is None else _read_points(Path(given.from_))
    if not points:
        raise ConfigError(
            "enqueue needs a point: params='{lr: 0.01, depth: 3}', or from=FILE.csv with a column "
            "for each param."
        )
    path, n_trials = study_path(config.study), 0
    with open_requests(config.study, path) as requests:
        is_served = requests.is_served()
        earlier = [] if is_served else [r for r in requests.pending() if r.kind == "enqueue"]
    if not is_served:
        fetch_shared_study(config.study)
        record = read_study(path)
        _check_points(points, config, record, outside=given.outside)
        n_waiting = sum(len(request.arguments["points"]) for request in earlier)
        n_trials = len(record.trials) + n_waiting + len(points)
    arguments = {"points": points, "outside": given.outside}
    total = n_trials if n_trials > config.study.decided_n_trials else None
    may_resume = partial(_resume_text, n_trials=total)
    return ask_sweep(path, config.study, "enqueue", arguments, later=may_resume)


def _resume_text(path: Path, study: StudyConfig, n_trials: int | None = None) -> str:
    """Return the command that starts the next sweep of the study at `path`, or words about the call
    from Python that does; `n_trials`: with this total."""
    settings = read_study(path).settings if StudyFiles(path).events.exists() else {}
    return resume_command_from_settings(_study_at(path, study), settings, n_trials)


def _check_points(
    points: list[dict[str, Any]], config: Config, record: StudyRecord, *, outside: bool
) -> None:
    """Raise ConfigError for a point that is outside the space of the study's own config, or outside
    what its trials have asked for."""
    from automl.search.search_space import EnqueuedPoint, asked_space, parse_space

    asks = config.objective.asks_for_params
    space = asked_space(parse_space(config.space), record.asked_entries if asks else {})
    for point in points:
        EnqueuedPoint(point, "", outside).check(space, may_have_others=asks)


def _read_points(file: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV as points. An empty cell names no param; in a table of `trials` the
    columns `params.NAME` count. Raises ConfigError."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as error:
        raise ConfigError(unreadable_text(file, error)) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"from={file}: this is no CSV in UTF-8 ({error}).") from error
    prefix = "params."
    names = [name for name in (rows[0] if rows else ()) if name and name.startswith(prefix)]
    columns = {n: n.removeprefix(prefix) for n in names} or {n: n for n in (rows or [{}])[0]}
    if None in columns or any(None in row for row in rows):
        raise ConfigError(f"from={file}: a row has more cells than there are columns.")
    return [{to: _value(row[n]) for n, to in columns.items() if row[n]} for row in rows]


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def stop(call: CommandCall) -> int:
    """Stop a trial of the study, or its sweep as Ctrl-C does. Raises AutoMLError."""
    config, given = call.config, call.typed_arguments(StopArguments)
    path, trial = find_study(config.study), given.trial
    arguments = {"trial": trial, "as": given.as_.name}
    if trial is None:
        return ask_sweep(path, config.study, "stop", arguments)
    study = _study_at(path, config.study)

    def check() -> None:
        fetch_shared_study(study)
        _check_stoppable(path, trial, config.study.decided_n_trials)

    check()
    return ask_sweep(path, config.study, "stop", arguments, later=_resume_text, check_later=check)


def _check_stoppable(path: Path, trial: int, n_trials: int) -> None:
    """Raise ConfigError for a trial that has ended, or that a study of `n_trials` never has."""
    record = read_study(path)
    known, n = record.trials.get(trial), max(record.n_trials or n_trials, len(record.trials))
    if known is None and trial >= n:
        raise ConfigError(f"trial={trial}: there is no such trial; the study has at most {n}.")
    if known is not None and known.state.is_final:
        raise ConfigError(
            f"trial={trial}: it has ended ({known.state.value}), and a trial that has ended "
            "stays as it is."
        )


def pause(call: CommandCall) -> int:
    """Have the study's sweep start no more trials. Raises AutoMLError."""
    return ask_sweep(find_study(call.config.study), call.config.study, "pause", {})


def ask_sweep(
    path: Path,
    study: StudyConfig,
    kind: str,
    arguments: Mapping[str, Any],
    *,
    later: Callable[[Path, StudyConfig], str] | None = None,
    check_later: Callable[[], None] = lambda: None,
) -> int:
    """Ask the sweep that works on the study at `path`, print its answer, and return the exit code.

    `later` returns what starts the next sweep, which may do what is asked for; None: only a sweep
    at work may. `check_later` raises ConfigError for what no sweep can do, once the sweep at work
    has ended without an answer. Raises ConfigError for what the sweep refuses, or where none works,
    and AutoMLError for a sweep that does not answer.
    """
    study = _study_at(path, study)
    with open_requests(study, path) as requests:
        may_ask = later is not None or requests.is_served()
        request = requests.write(kind, arguments) if may_ask else None
        pid = suspended_holder(path)
        answer = None
        if request is not None:
            try:
                answer = requests.wait_for_answer(request, ANSWER_SECONDS if pid is None else 0.0)
            except KeyboardInterrupt:  # the same command asks anew
                requests.withdraw(request)
                raise
        if request is not None and answer is None and requests.is_served():
            if request.is_for_sweeps:  # otherwise it is done when nobody expects it any more
                requests.withdraw(request)
            raise AutoMLError(f"{kind}: {_silence_text(pid, study, request)}")
    if answer is not None and not answer.done:
        raise ConfigError(f"{kind}: {answer.text}")
    if answer is None:
        check_later()
    if answer is None and later is None:  # perhaps its sweep has just ended
        raise ConfigError(
            f"{kind}: no sweep works on study {path.name}; it goes on with "
            f"{_resume_text(path, study)}"
        )
    text = "" if answer is None else answer.text
    if answer is None and later is not None:
        how = later(path, study)
        text = f"no sweep works on study {path.name}; its next one does it: {how}"
    say_on_stdout(text)
    write_answer({"study": path.name, "answered": answer is not None, "answer": text})
    return 0


def _silence_text(pid: int | None, study: StudyConfig, request: StudyRequest) -> str:
    """Return why a sweep at work does not answer, and what becomes of the request. `pid`: the
    process of a sweep that is stopped, as by Ctrl-Z."""
    if pid is not None:
        why = f"the sweep is stopped (process {pid}): let it go on with kill -CONT {pid}"
        then = ", then ask again" if request.is_for_sweeps else "; it does so then"
        return f"{why}{then}"
    then = "nothing was done" if request.is_for_sweeps else "it does so as soon as it can"
    return (
        f"the sweep has not answered within {ANSWER_SECONDS:g} s; {then}. See what it does: "
        f"{study_command('status', study)}"
    )


def _study_at(path: Path, study: StudyConfig) -> StudyConfig:
    return StudyConfig(name=path.name, dir=study.dir, storage=study.storage)


def ask(call: CommandCall) -> int:
    """Give out trials of the study, which is begun where there is none. Raises AutoMLError."""
    config = call.config
    path, study = study_path(config.study), config.study
    if path.exists():
        _refuse_changes("ask", call)
    elif not config.space:
        raise ConfigError(
            f"study.name={path.name}: there is no such study in {study.dir}; "
            f"{existing_studies_text(path.parent)}. Begin it with its space: "
            "space='{temperature: {low: 20, high: 80}}'"
        )
    arguments = call.typed_arguments(AskArguments)
    answer = ask_outside(config, arguments, call.stored_config)
    trials = answer.values["trials"]
    for trial in trials:
        say_on_stdout(f"trial {trial['trial']} {json.dumps(trial['params'])}")
    if len(trials) < arguments.n:
        say_on_stdout(answer.text)
    goal = {"metric": study.metric, "direction": study.direction}
    write_answer({"study": path.name, "trials": trials, **goal})
    return 0


def tell(call: CommandCall) -> int:
    """Record what is told of a trial, and print what becomes of it. Raises AutoMLError."""
    _refuse_changes("tell", call)
    arguments = call.typed_arguments(TellArguments)
    answer = tell_outside(call.config, arguments, call.stored_config)
    say_on_stdout(answer.text)
    write_answer({"study": call.config.study.name, **answer.values})
    return 0


def changed_settings(call: CommandCall) -> list[str]:
    """Return the keys of the settings that are not those of the study."""
    if call.stored_settings is None:
        return []
    before, now = flat_settings(call.stored_settings.compose()), flat_settings(call.config)
    return [key for key in {**before, **now} if before.get(key) != now.get(key)]


def _refuse_changes(command: str, call: CommandCall) -> None:
    """Raise ConfigError for settings that are not those of the study."""
    if changed := changed_settings(call):
        raise ConfigError(
            f"{command}: {', '.join(changed)}: not as the study has it. Leave it out, or change it "
            f"for all further trials: {study_command('edit', call.config.study)} …"
        )


def ask_outside(config: Config, asked: AskArguments, stored_config: str) -> RequestAnswer:
    """Have the study give out trials. Raises AutoMLError."""
    lease_seconds = math.inf if asked.lease is None else asked.lease
    arguments = {"n": asked.n, "lease_seconds": lease_seconds}
    return _have_answered(config, stored_config, "ask", arguments)


def tell_outside(config: Config, told: TellArguments, stored_config: str) -> RequestAnswer:
    """Have the study record what is told of a trial. Raises AutoMLError."""
    metric = config.study.leading_metric
    if told.trial is None:
        raise ConfigError("tell needs the number of a trial: trial=7 value=0.3")
    steps = {step: {metric: value} for step, value in (told.steps or {}).items()}
    metrics, state = dict(told.metrics or {}), told.state
    value = metrics.pop(metric, None) if told.value is None else told.value
    if told.step is not None:
        at_step = metrics if value is None else {**metrics, metric: value}
        steps, metrics, value = {**steps, told.step: at_step}, {}, None
    elif value is not None and state is None:
        state = ToldState.finished
    if not steps and state is None:
        raise ConfigError(
            "tell needs what came out: value=0.3; step=5 value=0.4 while the trial goes on; "
            "steps={0: 0.9, 1: 0.5}; or state=failed reason='…'."
        )
    arguments = {
        **{"trial": told.trial, "value": value, "reports": steps, "metrics": metrics},
        **{"state": None if state is None else state.value, "reason": told.reason},
    }
    return _have_answered(config, stored_config, "tell", arguments)


def _have_answered(
    config: Config, stored_config: str, kind: str, arguments: Mapping[str, Any]
) -> RequestAnswer:
    """Return the answer to an `ask` or a `tell`: that of the sweep that holds the study, or else
    our own. Raises ConfigError for what is refused, and StudyInUseError where nobody answers."""
    path = study_path(config.study).absolute()
    if config.study.shared:
        raise ConfigError(
            f"{kind}: study {path.name} is shared by sweeps of several machines, which give no "
            "trials to experiments outside. Begin a study without study.storage for them."
        )
    deadline = time.monotonic() + OUTSIDE_SECONDS
    requests = FolderRequestQueue(path)
    request: StudyRequest | None = None
    answer: RequestAnswer | None = None
    try:
        while answer is None and time.monotonic() < deadline:
            if requests.is_served() and StudyFiles(path).config.exists():
                request = request or requests.write(kind, arguments)
                answer = requests.wait_for_answer(request, deadline - time.monotonic())
            else:
                from automl.running.opening.outside_study import answer_here  # loads Optuna

                mine = request or StudyRequest(kind, arguments, getpass.getuser(), time.time())
                with holding_for(kind):  # a call from Python is no sweep either
                    answer = answer_here(config, stored_config, mine)
    finally:
        if request is not None:
            requests.withdraw(request)
    if answer is None:
        raise StudyInUseError(
            f"{kind}: whoever holds study {path.name} has not answered within "
            f"{OUTSIDE_SECONDS:g} s, and nothing was done. See what it does: "
            f"{study_command('status', config.study)}"
        )
    if not answer.done:
        raise ConfigError(answer.text)
    return answer
