"""`evaluate`: models of a study scored on rows that no sweep saw, with how sure that is.

Every metric of the task with a 95 % interval, baselines beside them, and for several models whether
their difference is more than chance: of a refit, whether it is worse than the trial it repeats.
Kept in the event log, and so on the runs in MLflow.
"""

from __future__ import annotations

from automl.commands.evaluation.keep import deliver, keep
from automl.commands.evaluation.parts import LEAST_ROWS, compared, ranked, said
from automl.commands.evaluation.scoring import Judge, Scoring, scored
from automl.commands.evaluation.shown import COLUMNS, lines_after, part_table, table_of
from automl.commands.which_model import choose_several
from automl.config import Config
from automl.data.evaluation import Evaluation
from automl.record.directory import command_line
from automl.record.opening import bring_up
from automl.record.place import settle_unlocked
from automl.record.studies import read_study, study_path
from automl.record.study import StudyRecord
from automl.record.texts import fit_line
from automl.running.console import open_console
from automl.tracking.long_step import long_step
from automl.tracking.say import Say, say_on_stdout
from automl.trial import Evaluated


def run(config: Config, stored_config: str) -> int:
    """Score, show and keep. Raises AutoMLError."""
    evaluate(config, say_on_stdout)
    return 0


def evaluate(
    config: Config,
    say: Say,
    *,
    show: bool = True,
    to_mlflow: bool = True,
    judge: Judge = Evaluation.judged,
) -> Evaluated:
    """The scores of the models that `evaluate.*` names; shown in tables, if they are to be, and
    given to MLflow, unless the caller does that later. `judge` has the baselines of rows that were
    scored before. Raises AutoMLError."""
    choices = choose_several(config)
    bring_up(config.study)
    directory = study_path(config.study)
    place = settle_unlocked(directory, config.study)
    record = read_study(directory)
    with long_step("loading PyTorch and scoring the models", say) as step:
        scoring = scored(config, record, choices, judge, step.at)
    if show:
        _show(scoring, config)
    if keep(scoring.event, config):
        if to_mlflow:
            deliver(directory, config, place, say)
    else:
        again = command_line("evaluate", config.study)
        say(f"a sweep works on the study, so that these scores are kept nowhere; after it: {again}")
    if show and scoring.table is not None:
        _show_parts(scoring.table, record, config)
    return scoring.event


def _show(scoring: Scoring, config: Config) -> None:
    event, console = scoring.event, open_console()
    console.say(f"{config.study.name}: {event.rows} ({fit_line(scoring.source)})", "bold")
    console.table(COLUMNS, table_of(event), n_left=2)
    for line in lines_after(event):
        console.say(line, "dim")
    for note in scoring.notes:
        console.say(note, "yellow")


def _show_parts(table: Evaluation, record: StudyRecord, config: Config) -> None:
    """Whether `data.sweep_rows` ranks as more rows do, where a study has it."""
    trials = compared(config, record)
    too_few = len(trials) < 2 or len(table.dataset.train) < LEAST_ROWS
    if config.data.sweep_rows is None or too_few:
        return
    found = ranked(trials, table, study_path(config.study), config)
    columns, rows = part_table(found)
    console = open_console()
    console.say("loss on the same rows, of the same trials trained on fewer", "bold")
    console.table(columns, rows)
    console.say(said(found), "dim")
