"""What a study of several metrics, or with constraints, cannot have, and what it says at the start.

The functions are pure: the settings come in, and a ConfigError or a line goes out.
"""

from __future__ import annotations

from automl.config import Config, check_setting
from automl.config.metrics import MEASURED_METRICS
from automl.record.texts import fit_line
from automl.running.prepare.identity_settings import option_name
from automl.search.pruners import pruners
from automl.search.pruners.pruner import Pruner
from automl.search.samplers import samplers
from automl.search.samplers.sampler import Sampler


def refuse_several_metrics(config: Config) -> None:
    """Raise ConfigError for a setting that needs one metric, if the study has several or limits."""
    study, sampler, pruner = config.study, config.sampler, config.pruner
    check_setting(
        study.leading_metric not in MEASURED_METRICS,
        "study.metric",
        study.leading_metric,
        "a trial measures it by itself, so that no report of a model has it: name one first that "
        "your training reports, study.metric=[val_loss, …].",
    )
    if not study.metrics.are_several:
        return
    assert isinstance(sampler, Sampler), "Hydra makes it by its schema"
    assert isinstance(pruner, Pruner), "Hydra makes it by its schema"
    why = "study.metric and study.constraints together judge a trial by several metrics"
    others = [name for name, kind in samplers().items() if kind.several_metrics]
    rule = f"{why}, and it learns from one value: take one of {', '.join(sorted(others))}."
    check_setting(sampler.several_metrics, "sampler", option_name(sampler), rule)
    others = [name for name, kind in pruners().items() if kind.several_metrics]
    rule = f"{why}, and it compares one value: take one of {', '.join(sorted(others))}."
    check_setting(pruner.several_metrics, "pruner", option_name(pruner), rule)
    rule = f"{why}, and repeats are averaged for one: leave it at 1, or give n repeats as a param."
    check_setting(study.repeats == 1, "study.repeats", study.repeats, rule)
    rule = f"{why}, and earlier trials are ranked by one: name their points in study.enqueue."
    check_setting(not study.warm_from, "study.warm_from", study.warm_from, rule)
    rule = f"{why}, and it is the value of one: leave it out, and stop the sweep by hand."
    check_setting(study.stop_value is None, "study.stop_value", study.stop_value, rule)
    rule = f"{why}, and the gain is that of one value: leave it out."
    check_setting(study.stop_gain is None, "study.stop_gain", study.stop_gain, rule)


def metrics_text(config: Config) -> str:
    """Return what the trials of a study with several metrics are judged by, for its first lines."""
    metrics = config.study.metrics
    named = ", ".join(f"{m.name} ({m.direction.value})" for m in metrics.metrics)
    limits = ", ".join(f"{limit.name} ≤ {limit.largest:g}" for limit in metrics.limits)
    return fit_line(
        f"trials are judged by {named}{f' with {limits}' * bool(limits)}; "
        f"{metrics.leading.name} chooses the report of a trial that counts"
    )
