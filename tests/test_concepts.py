"""The budget of what a user may have to know. A new setting names the one that goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from automl.cli.command_registry import LISTED_COMMANDS
from automl.cli.config_keys import OPTIONS_BY_CLASS, all_config_keys
from automl.cli.short_words import SHORT_WORDS
from automl.config import Config
from automl.config.setting import Who, settings_of

BUDGET = {"all": 8, "some": 38, "few": 17, "option": 4}
"""The largest number of settings by who changes them: 46 are listed, 17 are on the reference page
alone, and the others belong to one option."""
MAX_OPTION_KEYS = 32
"""The largest number of keys of models, samplers and pruners, by name, as `sampler.NAME`."""
SETTINGS: dict[str, Who] = dict(settings_of(Config))
SAME_MEANING = {
    "target": "the column, function or network that is the target of what the section names",
    "kind": "the option of the group, which nobody types",
}
"""Last words that several keys have, each with the one meaning that it has in all of them."""


def test_each_setting_says_who_changes_it() -> None:
    options = {*OPTIONS_BY_CLASS}
    keys = {key for key in all_config_keys() if "." in key and key.partition(".")[0] not in options}
    assert keys == {*SETTINGS}


@pytest.mark.parametrize("who", BUDGET)
def test_settings_stay_within_the_budget(who: Who) -> None:
    keys = [key for key, changed_by in SETTINGS.items() if changed_by == who]
    assert len(keys) <= BUDGET[who], f"a new setting replaces one of {keys}"


def test_keys_of_options_stay_within_the_budget() -> None:
    keys = {
        f"{group}.{key.name}"
        for group, options in OPTIONS_BY_CLASS.items()
        for option in options.values()
        for key in fields(option)
    }
    assert len(keys) <= MAX_OPTION_KEYS, sorted(keys)


def test_commands_stay_within_the_budget() -> None:
    assert len(LISTED_COMMANDS) <= 22, "a new command replaces one, or becomes a part of it"


def test_there_are_twelve_short_words() -> None:
    keys = {*SETTINGS} | {"sampler", "pruner"}
    assert len(SHORT_WORDS) == 12
    assert {*SHORT_WORDS.values()} <= keys


def test_no_two_keys_have_one_last_word_and_two_meanings() -> None:
    lasts = Counter(key.rpartition(".")[2] for key in SETTINGS)
    assert {last for last, n in lasts.items() if n > 1} <= {*SAME_MEANING}
