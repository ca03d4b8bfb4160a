"""Answers trials whose objective is written for Optuna, which ask for params while they run.

Until it is known which params such an objective asks for, its trials run one at a time: each is
drawn with the findings of the earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from automl.errors import ConfigError
from automl.running.loop.asking import NoParamAnswers
from automl.running.loop.messages import QuestionAsked
from automl.search.param_suggestions import N_ALIKE_TRIALS, ParamSuggester
from automl.search.study import Study
from automl.trial import (
    ParamAnswer,
    ParamQuestion,
    ParamRefusal,
    Params,
    ParamsNotSuggested,
    Reply,
    SweepStopping,
)


class NoParamQuestions(NoParamAnswers):
    """Stands in for `ParamQuestions` if trials get all their params at the start."""

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """Yield nothing, since no space has to be found."""
        yield from ()


@dataclass
class ParamQuestions:
    """Answers trials that ask for params. For the main thread."""

    study: Study
    suggesting: ParamSuggester
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        found = self.suggesting.found_space
        self._printed_shape = found.shape() if found.is_stable else None
        """The shape of the space that was last printed, by this sweep or an earlier one."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether no trial may start while another runs."""
        return not self.suggesting.found_space.is_stable

    def answer(self, message: QuestionAsked) -> Params:
        """Answer a running trial. Return its params, the new one included. Raises StorageError."""
        try:
            reply = self._reply(message.question)
        except ConfigError as error:
            reply = ParamRefusal(str(error))
        except BaseException:
            message.reply(SweepStopping())  # the trial waits; the next sweep takes it over
            raise
        message.reply(reply)
        for line in self.suggesting.differences():
            self.say(line)
        return self.study.params(message.question.trial)

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """Yield how trials differ from what the user wrote, and the space that was found as YAML
        lines: once it is known, and at the end if it has grown since or was not known before."""
        yield from self.suggesting.differences()
        found = self.suggesting.found_space
        is_news = (
            found.shape() != self._printed_shape
            if at_end
            else found.is_stable and self._printed_shape is None
        )
        if not is_news or not found.params:
            return
        self._printed_shape = found.shape()
        how = f"seen alike in {N_ALIKE_TRIALS} trials" if found.is_stable else "so far"
        yield f"what the objective asks for, {how}:"
        yield from (f"  {line}" for line in found.lines())

    def _reply(self, question: ParamQuestion | ParamsNotSuggested) -> Reply:
        if isinstance(question, ParamQuestion):
            return ParamAnswer(self.study.suggest(question))
        self.study.not_suggested(question)
        return ParamAnswer()


def open_questions(study: Study, say: Callable[[str], None]) -> ParamQuestions | NoParamQuestions:
    """Return what answers the trials of the study. `say` prints a line."""
    if study.suggester is None:
        return NoParamQuestions()
    return ParamQuestions(study, study.suggester, say)
