"""Errors of Hydra, OmegaConf and YAML as one ConfigError: key, value, rule, remedy.

This module also refuses settings of Hydra itself on the command line (`hydra.KEY=…`,
`hydra/GROUP=…`). Hydra only composes in this program: it makes no folder, configures no logging,
launches no jobs. `hydra.searchpath` concerns composing and is accepted; any other setting would be
ignored, so it is refused, and the message names the setting that works here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum

import yaml
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
)

from automl.cli.command_registry import MULTIRUN, closest_word
from automl.cli.config_keys import (
    SCHEMA_SUFFIX,
    config_groups,
    missing_value_text,
    unknown_key_text,
    unknown_option_text,
)
from automl.cli.number_bounds import long_number_text
from automl.cli.space_overrides import SPACE_FORMS_TEXT
from automl.config.other_distributions import nearest_to_text
from automl.errors import ConfigError
from automl.record.study_files import LOGS_FOLDER, SWEEP_LOG
from automl.record.texts import fit_line

_MAX_SHOWN = 300
"""Largest number of characters of an override, or of Hydra's rule, that a message repeats."""
_KEY = re.compile(r"[+~]{0,2}\w[\w-]*([./]\w[\w-]*)*(@.*)?")


@contextmanager
def explain_errors(overrides: Sequence[str] = ()) -> Iterator[None]:
    """Convert errors that the libraries raise over a config into ConfigError, within the block."""
    try:
        yield
    except OverrideParseException as error:
        raise ConfigError(_unreadable(error)) from error
    except MissingConfigException as error:
        raise ConfigError(_missing_config_text(error)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_explain(error, overrides)) from error
    except OverflowError as error:
        raise ConfigError(long_number_text(overrides)) from error
    except yaml.YAMLError as error:
        raise ConfigError(_bad_yaml(error)) from error
    except (UnicodeDecodeError, OSError, ValueError) as error:
        if "integer string conversion" in str(error):
            raise ConfigError(long_number_text(overrides)) from error
        raise ConfigError(f"A config file cannot be read: {error}") from error


def _explain(error: Exception, overrides: Sequence[str]) -> str:
    cause = error if isinstance(error, OmegaConfBaseException) else error.__cause__
    cause = cause or error.__context__
    if not isinstance(cause, OmegaConfBaseException):
        return _brief(str(error))
    return _in_file(error) + _explain_value(cause, overrides)


def _explain_value(error: OmegaConfBaseException, overrides: Sequence[str]) -> str:
    key = error.full_key or ""
    typed = _typed_override(key, overrides)
    if isinstance(error, ConfigAttributeError | ConfigKeyError):
        return unknown_key_text(key, error.object_type, typed.partition("=")[2])
    rule = str(error).split("\n")[0].strip().rstrip(".")
    if isinstance(error, InterpolationResolutionError):
        rule = re.sub(r"^\w+ raised while resolving interpolation: ", "", rule).strip('"')
        return f"{key}: {rule}. Define it, or give {key} a value."
    if typed.startswith("~"):
        return f"{typed}: a setting cannot be removed, only given another value: {key}=…"
    if names := _enum_names(error):
        rule = f"must be {' or '.join(filter(None, (', '.join(names[:-1]), names[-1])))}"
    typed, rule = fit_line(typed, _MAX_SHOWN), fit_line(rule, _MAX_SHOWN)
    return f"{typed}: {rule}.{_expected_type(error)}"


def _typed_override(key: str, overrides: Sequence[str]) -> str:
    """Return the override that set the key, as typed; else the key."""
    for line in overrides:
        if line.lstrip("+~").partition("=")[0] == key:
            return line
    return key or "config"


def _enum_names(error: OmegaConfBaseException) -> list[str]:
    """Return the values of the setting if it is one of an enum."""
    owner = error.object_type
    if not (isinstance(owner, type) and is_dataclass(owner)):
        return []
    default = next((known.default for known in fields(owner) if known.name == error.key), None)
    return [member.name for member in type(default)] if isinstance(default, Enum) else []


def _expected_type(error: OmegaConfBaseException) -> str:
    """Return ` It takes int, such as study.n_trials=20.`, from the class that has the key."""
    owner = error.object_type
    if not (isinstance(owner, type) and is_dataclass(owner)):
        return ""
    config_field = next((known for known in fields(owner) if known.name == error.key), None)
    if config_field is None or isinstance(config_field.default, Enum):
        return ""  # for enums the rule lists the names
    kind = str(config_field.type)
    if kind.endswith("Config"):
        return f" Give its keys one by one: {config_field.name}.KEY=…"
    if config_field.default is MISSING or config_field.default is None:
        return f" It takes {kind}."
    return f" It takes {kind}, such as {error.full_key}={config_field.default}."


def _in_file(error: Exception) -> str:
    """Return `data/mine.yaml: ` where Hydra names the file of the error, else an empty text."""
    match = re.match(r"In '([^']+)': ", str(error))
    return f"{match[1]}.yaml: " if match else ""


def _unreadable(error: OverrideParseException) -> str:
    line = error.override
    if "=" not in line:
        rule = "settings are written key=value; a command comes first on the line."
        return missing_value_text(line) or f"{line}: {rule}"
    key, _, value = line.partition("=")
    if not _KEY.fullmatch(key):
        return f"{line}: {key or 'nothing'} is no key; a key is words joined by dots: study.seed=1."
    reasons = [
        text for text in error.message.split("\n") if text and not text.startswith("See http")
    ]
    rule = reasons[1] if reasons[0].startswith("Error parsing") and len(reasons) > 1 else reasons[0]
    problem = f"{line}: cannot be read ({rule.split(': ', 1)[-1].strip()})"
    if key.lstrip("+").partition(".")[0] == "space":
        if (nearest := nearest_to_text(value)) is not None:
            return f"{line}: is no notation of a space; {nearest}."
        return f"{problem}; {SPACE_FORMS_TEXT}."
    quoted = value.replace("'", "\\'")
    return (
        f"{problem}. A value with commas, brackets, '=' or the like is put in quotes twice: "
        f"\"{key}='{quoted}'\""
    )


def _missing_config_text(error: MissingConfigException) -> str:
    missing = error.missing_cfg_file or ""
    group, _, name = missing.rpartition("/")
    if not group:
        return (
            f"--config-name {missing}: there is no such file in conf/ nor in --config-dir; it is "
            "given without folder and without .yaml."
        )
    options = [option for option in error.options or () if not option.endswith(SCHEMA_SUFFIX)]
    if options:
        where = _in_file(error)
        prefix = "" if where in ("", "sweep.yaml: ", "stored_config.yaml: ") else where
        return prefix + unknown_option_text(group, name, options)
    if group in config_groups():
        return f"{_in_file(error)}{missing}: there is no such file in conf/ nor in --config-dir."
    near = closest_word(group, config_groups())
    return f"{group}: there is no such group.{near} Groups: {_groups()}."


def _brief(text: str) -> str:
    """Return Hydra's message without its search path and its advice about `+`."""
    text = text.split("\nConfig search path")[0]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    message = " ".join(line for line in lines if not line.startswith("To append to your"))
    return (
        f"{message} Groups: {_groups()}." if "No match in the defaults list" in message else message
    )


def _groups() -> str:
    return ", ".join(config_groups())


def _bad_yaml(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"A config file is no valid YAML: {error}"
    problem = " ".join(str(error).split("\n  in ")[0].split())
    problem = getattr(error, "problem", None) or problem
    return f"{mark.name}, line {mark.line + 1}: not valid YAML ({problem}). Mend that line."


_FOLDERS = "give study.dir=FOLDER, where studies are kept"
_LOGGING = (
    f"a sweep's words are in FOLDER/NAME/{SWEEP_LOG} of its study, what its trials print in "
    f"FOLDER/NAME/{LOGS_FOLDER}; AUTOML_DEBUG=1 shows tracebacks"
)
_REMEDIES = {
    "run": _FOLDERS,
    "sweep": _FOLDERS,
    "output": _FOLDERS,
    "output_subdir": _FOLDERS,
    "job_logging": _LOGGING,
    "hydra_logging": _LOGGING,
    "verbose": "AUTOML_DEBUG=1 shows tracebacks",
    "job.chdir": "change to it before: cd FOLDER",
    "job.env_set": "set it in the shell before: export NAME=VALUE",
    "env": "set variables in the shell before: export NAME=VALUE",
    "launcher": "execution=NAME says where trials run, admission.max_concurrent_trials how many",
    "sweeper": "sampler=NAME proposes params; its settings are in conf/sampler",
}
_ACCEPTED = ("runtime", "overrides", "searchpath", "job.config_name", "job.override_dirname")
"""Settings of Hydra that describe the composition itself, or are accepted."""


def refuse_hydra_overrides(overrides: Sequence[str]) -> None:
    """Raise ConfigError for the first override of Hydra's settings that is not accepted, whatever
    its value."""
    for line in overrides:
        key, _, value = line.lstrip("+~").partition("=")
        part = key.replace("/", ".", 1).removeprefix("hydra.")
        if key.startswith(("hydra.", "hydra/")) and not _is_within(part, _ACCEPTED):
            raise ConfigError(_refusal(key, value, part))


def _refusal(key: str, value: str, part: str) -> str:
    if part == "mode":
        return MULTIRUN
    remedy = next((r for name, r in _REMEDIES.items() if _is_within(part, (name,))), "leave it out")
    setting = f"{key}={value}" if value else key
    return f"{setting}: has no effect here; {remedy}."


def _is_within(key: str, parts: Sequence[str]) -> bool:
    return any(key == part or key.startswith(f"{part}.") for part in parts)
