"""One step after another, each done once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from automl.commands.releasing.ledger import Done, Ledger, Made

Row = tuple[str, str, str]
"""Step, result, seconds."""
COLUMNS = ("step", "result", "seconds")


@dataclass(frozen=True)
class Step:
    """One of a release."""

    name: str
    """In the ledger and in the table."""
    key: Callable[[], str]
    """Digest of what decides it; asked for once the steps before it are done."""
    stands: Callable[[Made], bool]
    """Whether what it made is still there, as it was."""
    do: Callable[[], tuple[str, Made]]
    """The result, for people, and what was made. Raises AutoMLError."""


def carry_out(
    steps: Sequence[Step],
    ledger: Ledger,
    say: Callable[[str], object],
    ended: Callable[[Row], object],
) -> None:
    """Do what is not done; `ended` gets the row of each step as it ends. Raises what they raise."""
    for place, step in enumerate(steps, 1):
        key = step.key()
        done = ledger.find(step.name, key)
        if done is not None and step.stands(done.made):
            ended((step.name, f"{done.result} (done before)", f"{done.seconds:.1f}"))
            continue
        say(f"{place} of {len(steps)}: {step.name}")
        begun = time.monotonic()
        result, made = step.do()
        seconds = time.monotonic() - begun
        ledger.keep(step.name, Done(key, result, seconds, made))
        ended((step.name, result, f"{seconds:.1f}"))
