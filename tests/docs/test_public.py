"""No public name goes away unseen, and a new one is listed."""

from __future__ import annotations

from automl.config.renamed import ARGUMENTS, DROPPED, DROPPED_ARGUMENTS, MOVED
from tests.docs.public import listed_names, public_names

STILL_READ = {
    *(old for row in (*MOVED, *ARGUMENTS) for old in row.old),
    *(row.key for row in (*DROPPED, *DROPPED_ARGUMENTS)),
}
"""Former keys, which are read for ever."""


def test_no_public_name_has_gone_away() -> None:
    gone = {name for name in listed_names() - public_names() if name.split()[-1] not in STILL_READ}
    assert gone == set(), (
        "these are public: give each a row in automl/config/renamed.py, or keep it"
    )


def test_every_public_name_is_listed() -> None:
    assert public_names() - listed_names() == set(), "list them: python -m tests.docs.public"
