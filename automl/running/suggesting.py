"""Objectives written for Optuna: their trials' questions, answered in the main thread.

Until it is known what such an objective asks for, its trials run one at a time: each is drawn with
what the ones before it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from automl.admission.reasons import Refusal
from automl.errors import ConfigError
from automl.running.messages import Asks, Execution, Running
from automl.search.found_space import N_ALIKE
from automl.search.study import Study
from automl.search.suggesting import Suggesting
from automl.trial import Given, NotSuggested, Refused, Reply, Stopping, Suggest

FINDING_OUT = Refusal(
    "waiting: what the objective asks for is found out by one trial at a time", for_devices=False
)


class NoQuestions:
    """For objectives that are given all their params."""

    one_at_a_time = False

    def answer(
        self, asks: Asks, running: Mapping[int, Running], executions: Mapping[int, Execution]
    ) -> None:
        raise AssertionError(f"{asks.question}: no such objective asks")

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """Nothing is."""
        yield from ()


@dataclass
class Questions:
    """For objectives that ask. For the main thread."""

    study: Study
    suggesting: Suggesting
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        found = self.suggesting.found
        self._said = found.shape() if found.is_stable else None
        """What was printed, by this sweep or one before."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether no trial may start while another runs."""
        return not self.suggesting.found.is_stable

    def answer(
        self, asks: Asks, running: dict[int, Running], executions: Mapping[int, Execution]
    ) -> None:
        """Answer a running trial, which knows its new param from now on. Raises StorageError."""
        number = asks.question.trial
        try:
            reply = self._reply(asks.question)
        except ConfigError as error:
            reply = Refused(str(error))
        except BaseException:
            asks.reply(Stopping())  # it waits, and will be taken over with the study
            raise
        self._know_params(number, running, executions)
        asks.reply(reply)
        for line in self.suggesting.differences():
            self.say(line)

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """What was found, as YAML, a line each: once it is known, and at the end where it has grown
        since or was not known before."""
        found = self.suggesting.found
        is_news = found.shape() != self._said if at_end else found.is_stable and self._said is None
        if not is_news or not found.params:
            return
        self._said = found.shape()
        how = f"seen alike in {N_ALIKE} trials" if found.is_stable else "so far"
        yield f"what the objective asks for, {how}:"
        yield from (f"  {line}" for line in found.lines())

    def _reply(self, question: Suggest | NotSuggested) -> Reply:
        if isinstance(question, Suggest):
            return Given(self.study.suggest(question))
        self.study.not_suggested(question)
        return Given()

    def _know_params(
        self, number: int, running: dict[int, Running], executions: Mapping[int, Execution]
    ) -> None:
        """What is learned of the trial, and what it asks for should it run again, goes by them."""
        if number not in running:
            return
        waiting = running[number].waiting
        trial = replace(waiting.trial, params=self.study.params(number))
        waiting = replace(waiting, trial=trial)
        running[number] = replace(running[number], waiting=waiting)
        for execution in executions.values():
            if number in execution.members:
                execution.members[number] = waiting
