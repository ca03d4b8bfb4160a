"""Reads a sweep configuration of W&B (`from=sweep.yaml`), key by key, into settings.

Pure, apart from the variables that `${envvar:NAME}` names. What has no counterpart is refused by
name with the nearest setting; what only says where W&B keeps a sweep is left out, and a note says
so.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automl.config import study_name_of
from automl.config.other_distributions import central_range
from automl.config.range_text import range_text
from automl.errors import ConfigError

_SAMPLERS = {"bayes": "gp", "random": "random", "grid": "grid"}
_READ = (
    *("program", "command", "method", "metric", "metrics", "parameters", "run_cap", "name"),
    "early_terminate",
)
_LEFT_OUT = (
    *("project", "entity", "description", "controller", "apiVersion", "kind", "$schema"),
    "scheduler",
)
_JOBS = ("job", "image_uri", "resource", "queue")
_DEFAULT_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_ETA = 3
"""W&B's `early_terminate.eta` where none is given."""
_MACRO = re.compile(r"\$\{(\w+)\}")
_ENVVAR = re.compile(r"\$\{envvar:([A-Z0-9_]*)\}")


@dataclass(frozen=True)
class WandbSweep:
    """What a sweep configuration of W&B becomes here."""

    settings: Mapping[str, Any]
    """Values by key (`study.metric`), in the order in which they are read."""
    space: Mapping[str, Any]
    notes: tuple[str, ...]
    """A line on each key that is left out or is another thing here."""


class _Reader:
    """Names the file and the key of what it refuses."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.notes: list[str] = []

    def refuse(self, key: str, value: object, why: str) -> ConfigError:
        return ConfigError(f"from={self.file}: {key}: {value}: {why}")

    def mapping(self, key: str, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self.refuse(key, value, "must be a mapping.")
        return value

    def number(self, key: str, value: object) -> int | float:
        if isinstance(value, str):  # YAML 1.1 reads 1e-4 as a text
            with contextlib.suppress(ValueError):
                value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(key, value, "must be a number.")
        return value


def read_wandb_sweep(
    config: object, file: str, environ: Mapping[str, str], interpreter: str = "python"
) -> WandbSweep:
    """Return what a configuration becomes; `interpreter` is the word for `${interpreter}`. Raises
    ConfigError."""
    reader = _Reader(file)
    sweep = reader.mapping("the file", config)
    for key in sweep:
        if key in _JOBS:
            why = "jobs of W&B Launch do not run here. Give program: train.py."
            raise reader.refuse(key, sweep[key], why)
        if key not in (*_READ, *_LEFT_OUT):
            known = ", ".join((*_READ, *_LEFT_OUT))
            raise reader.refuse(key, sweep[key], f"no such key of a sweep; there are {known}.")
    space = dict(
        _params(reader, "parameters", reader.mapping("parameters", sweep.get("parameters")))
    )
    left_out = [key for key in _LEFT_OUT if key in sweep]
    if left_out:
        reader.notes.append(f"{', '.join(left_out)}: left out, for W&B alone has them")
    settings: dict[str, Any] = {
        "objective": "command",
        "objective.command": _command(reader, sweep, tuple(space), environ, interpreter),
        "objective.wandb": True,
        "sampler": _sampler(reader, sweep.get("method")),
    }
    settings |= _metric_settings(reader, sweep)
    if "run_cap" in sweep:
        settings["study.n_trials"] = sweep["run_cap"]
    elif settings["sampler"] == "grid":
        settings["study.n_trials"] = math.prod(map(_n_values, space.values()))
    if name := study_name_of(str(sweep.get("name", ""))):
        settings["study.name"] = name
    if "early_terminate" in sweep:
        early = reader.mapping("early_terminate", sweep["early_terminate"])
        settings |= _pruner(reader, early)
    else:
        settings["pruner"] = "none"  # W&B ends no trial early by itself
    return WandbSweep(settings, space, tuple(reader.notes))


def _sampler(reader: _Reader, method: object) -> str:
    if method not in _SAMPLERS:
        why = f"there are {', '.join(_SAMPLERS)}. The nearest is bayes."
        raise reader.refuse("method", method, why)
    return _SAMPLERS[str(method)]


def _metric_settings(reader: _Reader, sweep: Mapping[str, Any]) -> dict[str, Any]:
    metrics = sweep.get("metrics") or [metric for metric in (sweep.get("metric"),) if metric]
    names, directions, targets = [], [], []
    for metric in metrics:
        entry = reader.mapping("metric", metric)
        names.append(entry.get("name"))
        goal = entry.get("goal", "minimize")
        if goal not in ("minimize", "maximize"):
            raise reader.refuse("metric.goal", goal, "must be minimize or maximize.")
        directions.append(goal)
        if "target" in entry:
            targets.append(reader.number("metric.target", entry["target"]))
        if odd := entry.keys() & {"impute", "impute_while_running"}:
            reader.notes.append(f"metric.{min(odd)}: left out; failed trials are not given a value")
    if not names:
        reader.notes.append("metric: none is given, so it is val_loss, to minimize")
        return {}
    several = len(names) > 1
    return {
        "study.metric": names if several else names[0],
        "study.direction": directions if several else directions[0],
    } | ({"study.stop_value": targets[0]} if targets else {})


def _pruner(reader: _Reader, early: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of successive halving with the brackets of W&B's Hyperband."""
    if early.get("type") != "hyperband":
        why = "only hyperband has a counterpart. The nearest is pruner=median."
        raise reader.refuse("early_terminate.type", early.get("type"), why)
    eta = reader.number("early_terminate.eta", early.get("eta", _ETA))
    if eta != int(eta):
        why = f"pruner.factor is a whole number. The nearest is eta: {max(2, round(eta))}."
        raise reader.refuse("early_terminate.eta", eta, why)
    settings = {"pruner": "halving", "pruner.factor": int(eta)}
    if "max_iter" in early:
        n_steps = int(reader.number("early_terminate.max_iter", early["max_iter"]))
        n_brackets = reader.number("early_terminate.s", early.get("s", 1))
        first = max(1, math.ceil(n_steps / eta**n_brackets))
        settings |= {"pruner.max_steps": n_steps, "pruner.min_steps": first}
    elif "min_iter" in early:
        first = int(reader.number("early_terminate.min_iter", early["min_iter"]))
        settings["pruner.min_steps"] = first
        if "s" in early:
            reader.notes.append("early_terminate.s: left out, as W&B does beside min_iter")
    else:
        raise reader.refuse("early_terminate", dict(early), "needs min_iter, or max_iter and s.")
    if "strict" in early:
        reader.notes.append("early_terminate.strict: left out; a trial is judged once at each rung")
    return settings


# --- the parameters -------------------------------------------------------------------------------


def _params(
    reader: _Reader, key: str, entries: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield each param with its entry of the space; nested ones have names with dots."""
    for name, entry in entries.items():
        place = f"{key}.{name}"
        constraint = reader.mapping(place, entry)
        if "parameters" in constraint:
            nested = reader.mapping(f"{place}.parameters", constraint["parameters"])
            yield from _params(reader, place, nested, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _entry(reader, place, constraint)


def _entry(reader: _Reader, key: str, given: Mapping[str, Any]) -> Any:
    """Return the entry of the space for one parameter. Raises ConfigError."""
    if "value" in given:
        return _scalar(reader, f"{key}.value", given["value"])
    if "probabilities" in given:
        why = "choices have no weights. The nearest is values: without them."
        raise reader.refuse(f"{key}.probabilities", given["probabilities"], why)
    if "values" in given:
        values = [_scalar(reader, f"{key}.values", value) for value in given["values"]]
        return {"choices": values} if len(values) > 1 else values[0]
    kind = given.get("distribution") or _default_distribution(reader, key, given)
    make = _DISTRIBUTIONS.get(kind)
    if make is None:
        nearest = _NEAREST.get(kind)
        if nearest is None:
            raise reader.refuse(
                f"{key}.distribution", kind, f"there are {', '.join(_DISTRIBUTIONS)}."
            )
        why = f"the space has ranges alone. The nearest is {nearest(reader, key, given)}."
        raise reader.refuse(f"{key}.distribution", kind, why)
    return make(reader, key, given)


def _n_values(entry: Any) -> int:
    """Return the number of values of an entry, of which a grid has all; 1 of a range without end,
    which the sampler refuses."""
    if not isinstance(entry, Mapping):
        return 1
    if "choices" in entry:
        return len(entry["choices"])
    step = entry.get("step") or 1
    is_listed = "step" in entry or isinstance(entry["low"], int)
    return int((entry["high"] - entry["low"]) / step + 1e-9) + 1 if is_listed else 1


def _scalar(reader: _Reader, key: str, value: object) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    why = "a value is a number, a text, true, false or null. The nearest is its text: '…'."
    raise reader.refuse(key, value, why)


def _default_distribution(reader: _Reader, key: str, given: Mapping[str, Any]) -> str:
    if not {"min", "max"} <= given.keys():
        raise reader.refuse(key, dict(given), "give value, values, or min and max.")
    whole = all(isinstance(given[end], int) for end in ("min", "max"))
    return "int_uniform" if whole else "uniform"


def _ends(reader: _Reader, key: str, given: Mapping[str, Any]) -> tuple[int | float, int | float]:
    for end in ("min", "max"):
        if end not in given:
            raise reader.refuse(key, dict(given), f"{given.get('distribution')} needs {end}.")
    low, high = (reader.number(f"{key}.{end}", given[end]) for end in ("min", "max"))
    return low, high


def _uniform(reader: _Reader, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    low, high = _ends(reader, key, given)
    return {"low": float(low), "high": float(high)}


def _int_uniform(reader: _Reader, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    low, high = _ends(reader, key, given)
    return {"low": int(low), "high": int(high)}


def _log_uniform_values(reader: _Reader, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    low, high = _ends(reader, key, given)
    return {"low": float(low), "high": float(high), "log": True}


def _log_uniform(reader: _Reader, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the range of a distribution whose ends are exponents of e."""
    low, high = _ends(reader, key, given)
    if given.get("distribution") == "inv_log_uniform":
        low, high = -high, -low
    try:
        ends = [float(f"{math.exp(end):.6g}") for end in (low, high)]
    except OverflowError:
        why = "the ends are exponents of e. For values, write log_uniform_values."
        raise reader.refuse(key, dict(given), why) from None
    name = key.removeprefix("parameters.")
    written = range_text(*ends, log=True)
    reader.notes.append(f"{name}: {low}..{high} are exponents of e, that is {written}")
    return {"low": ends[0], "high": ends[1], "log": True}


def _step(reader: _Reader, key: str, given: Mapping[str, Any]) -> int | float:
    return reader.number(f"{key}.q", given.get("q", 1))


def _q_uniform(reader: _Reader, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the multiples of `q` that W&B's rounding reaches."""
    (low, high), q = _ends(reader, key, given), _step(reader, key, given)
    ends = [round(end / q) * q for end in (low, high)]
    if float(q).is_integer():
        return {"low": round(ends[0]), "high": round(ends[1]), "step": int(q)}
    first, last = (float(f"{end:.12g}") for end in ends)
    return {"low": first, "high": last, "step": float(q)}


def _q_log_uniform_values(reader: _Reader, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    (low, high), q = _ends(reader, key, given), _step(reader, key, given)
    if q != 1:
        nearest = f"log_uniform_values without q, or q_uniform, or values: [{low}, …, {high}]"
        raise reader.refuse(f"{key}.q", q, f"a log range has no step. The nearest is {nearest}.")
    return {"low": max(1, round(low)), "high": round(high), "log": True}


_Make = Callable[[_Reader, str, Mapping[str, Any]], dict[str, Any]]

_DISTRIBUTIONS: Mapping[str, _Make] = {
    "uniform": _uniform,
    "int_uniform": _int_uniform,
    "log_uniform_values": _log_uniform_values,
    "inv_log_uniform_values": _log_uniform_values,  # log(1/x) is uniform where log(x) is
    "log_uniform": _log_uniform,
    "inv_log_uniform": _log_uniform,
    "q_uniform": _q_uniform,
    "q_log_uniform_values": _q_log_uniform_values,
}


def _near_normal(reader: _Reader, key: str, given: Mapping[str, Any]) -> str:
    """Return the range with 95 % of the values, as W&B writes it."""
    mu = reader.number(f"{key}.mu", given.get("mu", 0))
    sigma = reader.number(f"{key}.sigma", given.get("sigma", 1))
    low, high = central_range(mu, sigma)
    if "log" in str(given["distribution"]):
        low, high = (min(math.exp(min(end, 700.0)), 1e300) for end in (low, high))
        return f"distribution: log_uniform_values, min: {low:.6g}, max: {high:.6g}"
    step = f", q: {_step(reader, key, given)}" if "q" in given else ""
    kind = "q_uniform" if step else "uniform"
    return f"distribution: {kind}, min: {low:.6g}, max: {high:.6g}{step}"


def _near_beta(reader: _Reader, key: str, given: Mapping[str, Any]) -> str:
    return "distribution: uniform, min: 0, max: 1"


def _near_q_log_uniform(reader: _Reader, key: str, given: Mapping[str, Any]) -> str:
    low, high = (math.exp(min(end, 700.0)) for end in _ends(reader, key, given))
    return f"distribution: log_uniform_values, min: {low:.6g}, max: {high:.6g}"


_NEAREST: Mapping[str, Callable[[_Reader, str, Mapping[str, Any]], str]] = {
    "normal": _near_normal,
    "q_normal": _near_normal,
    "log_normal": _near_normal,
    "q_log_normal": _near_normal,
    "beta": _near_beta,
    "q_beta": _near_beta,
    "q_log_uniform": _near_q_log_uniform,
}


# --- the command ----------------------------------------------------------------------------------

_NO_PARAMS = ("env", "SWEEP_PARAMS={json}")
"""Stands before a command without params, which would be appended to it otherwise."""


def _command(
    reader: _Reader,
    sweep: Mapping[str, Any],
    names: Sequence[str],
    environ: Mapping[str, str],
    interpreter: str,
) -> str:
    """Return `objective.command`: each macro of W&B as the placeholders of the same meaning."""
    given = sweep.get("command") or _DEFAULT_COMMAND
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise reader.refuse("command", given, "must be a list of words.")
    words: list[str] = []
    for word in map(str, given):
        macro = _MACRO.fullmatch(word)
        if macro is None:
            words.append(_quoted(_fill_variables(reader, word, environ)))
        elif macro[1] == "program":
            if not sweep.get("program"):
                raise reader.refuse("program", None, "must be named: program: train.py.")
            words.append(_quoted(str(sweep["program"])))
        elif macro[1] == "interpreter":
            words.append(_quoted(interpreter))
        elif macro[1] != "env":
            words += _params_of_macro(reader, macro[1], names)
    has_params = any(re.search(r"(?<!\{)\{\w", word) for word in words)
    sets_variables = bool(words) and re.match(r"\w+=", words[0]) is not None
    if not has_params:
        words = [*_NO_PARAMS, *words]
    elif sets_variables:
        words = ["env", *words]
    return " ".join(words)


def _params_of_macro(reader: _Reader, macro: str, names: Sequence[str]) -> Sequence[str]:
    outer = list(dict.fromkeys(name.partition(".")[0] for name in names))
    groups = [name for name in outer if name not in names]
    match macro:
        case "args" | "args_no_boolean_flags":
            return ["{params}", *(f"--{group}={{{group}}}" for group in groups)]
        case "args_no_equals":
            return [word for name in outer for word in (f"--{name}", f"{{{name}}}")]
        case "args_no_hyphens":
            return ["{overrides}"]
        case "args_append_hydra" | "args_override_hydra":
            plus = "+" if macro == "args_append_hydra" else "++"
            return [f"{plus}{name}={{{name}}}" for name in names]
        case "args_json_file":
            return ["{json}"]
        case "args_json":
            why = "no word holds all params as JSON. The nearest is ${args_json_file}."
        case _:
            why = (
                "no such macro; there are ${env}, ${interpreter}, ${program}, ${args}, "
                "${args_no_hyphens}, ${args_no_equals}, ${args_no_boolean_flags}, "
                "${args_append_hydra}, ${args_override_hydra}, ${args_json_file} and "
                "${envvar:NAME}."
            )
    raise reader.refuse("command", f"${{{macro}}}", why)


def _fill_variables(reader: _Reader, word: str, environ: Mapping[str, str]) -> str:
    def text(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise reader.refuse("command", match[0], f"set {match[1]}, or write its value.")
        return environ[match[1]]

    return _ENVVAR.sub(text, word)


def _quoted(word: str) -> str:
    """Return a word for a command line, whose braces are the program's own."""
    return shlex.quote(word.replace("{", "{{").replace("}", "}}"))
