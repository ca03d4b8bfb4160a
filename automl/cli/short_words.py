"""The short words of a line: bare words that name studies and files, and twelve words for the
settings that everyone uses.

All functions are pure: they turn words into words with long keys. The twelve words are fixed, so
that no later setting makes one of them ambiguous; an argument of a command wins over them. The same
words are the arguments of `automl.sweep` and `automl.fit`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from automl.cli.command_registry import Command
from automl.config import STUDY_NAME_PATTERN
from automl.config.checks import NONE_WORDS, is_function_target, parse_seconds
from automl.errors import ConfigError

TRAIN = "train"
SHORT_WORDS: Mapping[str, str] = {
    "table": "data.path",
    "target": "data.target",
    TRAIN: "objective.target",  # of a function; a program is objective.command
    "n_trials": "study.n_trials",
    "timeout": "study.timeout_seconds",
    "metric": "study.metric",
    "direction": "study.direction",
    "seed": "study.seed",
    "sampler": "sampler",
    "pruner": "pruner",
    "epochs": "training.epochs",
    "name": "study.name",
}
"""The short words, with the keys that they stand for."""
WORDS_ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("time_limit", "time_budget", "time_budget_s", "max_time"), "timeout"),
    **dict.fromkeys(("num_trials", "max_trials", "n_iter", "num_samples"), "n_trials"),
    **dict.fromkeys(("random_state", "random_seed"), "seed"),
    **dict.fromkeys(("eval_metric", "scoring"), "metric"),
    **dict.fromkeys(("label", "label_column"), "target"),
    **dict.fromkeys(("train_data", "dataset"), "table"),
    "max_epochs": "epochs",
}
"""Names that other tools have for what the short words say."""
SHORT_BY_KEY = {key: word for word, key in SHORT_WORDS.items()}

_STUDY = "study.name"
_SECONDS = re.compile(r"(?!space)\w+\.\w+_seconds")
_NO_DURATION = NONE_WORDS | {"", "auto"}
_SETTING = re.compile(r"(\+{0,2})([\w.]+)=(.*)", re.DOTALL)
_PLAIN_NAME = re.compile(r"[A-Za-z][\w.-]*")
_WORDS_OF_HYDRA = frozenset(("null", "none", "true", "false", "nan", "inf"))
_SCRIPT = re.compile(r"\S+\.py")


def name_bare_words(command: Command, words: Sequence[str]) -> list[str]:
    """Return the words; those without `=` get the keys that they stand for in the command: the
    study, then what else the command takes (`predict NAME TABLE`).

    Raises ConfigError for a word too many, and for a study that is named twice.
    """
    bare = [word for word in words if "=" not in word and not word.startswith("~")]
    if not bare:
        return list(words)
    keys = command.bare_words
    if len(bare) > len(keys) and not command.has_many_words:
        raise ConfigError(_surplus_text(command, bare[len(keys)]))
    one_each = keys[:-1] if command.has_many_words else keys
    named = []
    for key, word in zip(one_each, bare, strict=False):
        _refuse_second_value(command, key, word, words)
        named.append(_study_word(command, word) if key == _STUDY else f"{key}={word}")
    if rest := bare[len(one_each) :] if command.has_many_words else []:
        listed = ",".join("'{}'".format(word.replace("'", "\\'")) for word in rest)
        named.append(f"{keys[-1]}=[{listed}]")
    return [*named, *(word for word in words if word not in bare)]


def _surplus_text(command: Command, word: str) -> str:
    names = [key.rpartition(".")[2].upper() for key in command.bare_words]
    takes = f"is written {command.name} {' '.join(names)}" if names else "takes no word without '='"
    remedy = " name=… names a new study; automl resume NAME goes on with one."
    return (
        f"{word}: settings are written key=value, and {command.name} {takes}."
        f"{'' if names else remedy}"
    )


def _refuse_second_value(command: Command, key: str, word: str, words: Sequence[str]) -> None:
    others = [text for other, text in map(_split, words) if other == key]
    if other := next((text for text in others if text.strip("'\"") != word), None):
        raise ConfigError(
            f"{command.name} {word} {key}={other}: these are two values for {key}; leave one out."
        )


def _study_word(command: Command, word: str) -> str:
    """Return `study.name=WORD`. Raises ConfigError for a name that no study can have."""
    if not STUDY_NAME_PATTERN.fullmatch(word):
        raise ConfigError(
            f"{word}: the word behind {command.name} is the name of a study, which is 1 to 128 "
            "letters, digits, '.', '_' or '-'; settings are written key=value."
        )
    is_plain = _PLAIN_NAME.fullmatch(word) and word.lower() not in _WORDS_OF_HYDRA
    return f"{_STUDY}={word}" if is_plain else f"{_STUDY}='{word}'"


def expand_short_words(words: Sequence[str]) -> list[str]:
    """Return overrides with long keys for the short words, and durations (`10min`) as seconds.

    Raises ConfigError for a wrong value of `train` or of a duration, and where a short word and its
    long key differ.
    """
    expanded = [_expand(word) for word in words]
    for word, long_word in zip(words, expanded, strict=True):
        keys = {_split(word)[0], _split(long_word)[0]}
        for other, long_other in zip(words, expanded, strict=True):
            names_same = not keys.isdisjoint({_split(other)[0], _split(long_other)[0]})
            if len(keys) > 1 and names_same and long_other != long_word:
                raise ConfigError(f"{word} {other}: both say the same setting; leave one out.")
    return expanded


def _split(word: str) -> tuple[str, str]:
    """Return the key and the value of an override."""
    key, _, value = word.lstrip("+").partition("=")
    return key, value


def _expand(word: str) -> str:
    match = _SETTING.fullmatch(word)
    if match is None:
        return word
    signs, key, value = match.groups()
    if key == TRAIN:
        return f"{signs}{_train_key(value)}={value}"
    long_key = SHORT_WORDS.get(key, key)
    if _SECONDS.fullmatch(long_key):
        value = _seconds_text(key, value)
    return f"{signs}{long_key}={value}"


def _train_key(text: str) -> str:
    """Return the key for what trains: a function of Python, or a program with its arguments."""
    plain = text.strip().strip("'\"")
    if is_function_target(plain):
        return "objective.target"
    if _SCRIPT.fullmatch(plain):
        raise ConfigError(
            f"train={text}: names a file. A function in it is train={plain}:FUNCTION, and the file "
            f"as a program train='python {plain}'."
        )
    return "objective.command"


def _seconds_text(key: str, value: str) -> str:
    """Return a duration as a number of seconds; a number, and what Hydra resolves, stay."""
    plain = value.strip("'\"")
    if plain.lower() in _NO_DURATION or "${" in plain:
        return value
    try:
        float(plain)
    except ValueError:
        return repr(parse_seconds(key, plain))
    return value
