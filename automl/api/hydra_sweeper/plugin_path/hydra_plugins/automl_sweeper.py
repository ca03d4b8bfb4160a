"""The plugin that Hydra finds: `hydra/sweeper=automl`, and what hands back a trial's value.

Hydra imports this module at each start of each Hydra application of the environment, so it imports
nothing but Hydra. `plugin_path/` is a folder of the Python path, and `hydra_plugins` a namespace
package there, which other distributions add to. The names of the settings are those of
hydra-optuna-sweeper; `automl/api/hydra_sweeper/sweeper_settings.py` reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from hydra.experimental.callback import Callback
from hydra.plugins.sweeper import Sweeper

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig

SETTINGS: dict[str, Any] = {
    "_target_": "hydra_plugins.automl_sweeper.AutomlSweeper",
    "_recursive_": False,  # the sampler is read, not made
    "defaults": [{"sampler": "auto"}],
    "direction": "minimize",
    "storage": None,
    "study_name": None,
    "n_trials": 20,
    "n_jobs": None,
    "max_failure_rate": None,
    "search_space": None,
    "params": None,
    "custom_search_space": None,
    # Settings that hydra-optuna-sweeper does not have:
    "metric": None,
    "pruner": None,
    "overrides": [],
}
"""The settings below `hydra.sweeper`, and their defaults."""

_NSGA = ("population_size", "mutation_prob", "crossover_prob", "swapping_prob")
SAMPLERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "auto": ("auto", ()),
    "tpe": (
        "TPESampler",
        (
            "consider_prior",
            "prior_weight",
            "consider_magic_clip",
            "consider_endpoints",
            "n_startup_trials",
            "n_ei_candidates",
            "multivariate",
            "group",
            "constant_liar",
            "warn_independent_sampling",
        ),
    ),
    "random": ("RandomSampler", ()),
    "cmaes": (
        "CmaEsSampler",
        (
            "x0",
            "sigma0",
            "independent_sampler",
            "warn_independent_sampling",
            "consider_pruned_trials",
            "restart_strategy",
            "inc_popsize",
            "use_separable_cma",
            "source_trials",
        ),
    ),
    "nsgaii": ("NSGAIISampler", (*_NSGA, "constraints_func")),
    "nsgaiii": ("NSGAIIISampler", (*_NSGA, "constraints_func")),
    "motpe": ("MOTPESampler", ()),
    "grid": ("GridSampler", ("_partial_",)),
    "gp": (
        "GPSampler",
        (
            "independent_sampler",
            "n_startup_trials",
            "deterministic_objective",
            "constraints_func",
            "warn_independent_sampling",
        ),
    ),
    "qmc": (
        "QMCSampler",
        (
            "qmc_type",
            "scramble",
            "independent_sampler",
            "warn_asynchronous_seeding",
            "warn_independent_sampling",
        ),
    ),
}
"""The options of `hydra/sweeper/sampler`: a class of Optuna, and its arguments besides the seed."""

_PROVIDER = "automl_sweeper"


def _register() -> None:
    store = ConfigStore.instance()
    store.store(group="hydra/sweeper", name="automl", node=SETTINGS, provider=_PROVIDER)
    for option, (cls, arguments) in SAMPLERS.items():
        target = cls if cls == "auto" else f"optuna.samplers.{cls}"
        node = {"_target_": target, "seed": None} | dict.fromkeys(arguments)
        store.store(group="hydra/sweeper/sampler", name=option, node=node, provider=_PROVIDER)


_register()


class AutomlSweeper(Sweeper):
    """Runs the application's `--multirun` as a sweep, each trial as a program of its own."""

    def __init__(self, **settings: Any) -> None:
        self._settings: Mapping[str, Any] = settings

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep the application's config. `task_function` is called by the trials' programs."""
        self._hydra_context, self._config = hydra_context, config

    def sweep(self, arguments: list[str]) -> None:
        """Run the sweep to its end; `arguments` are the overrides of the application."""
        from automl.api.hydra_sweeper.application_sweep import run_application_sweep

        run_application_sweep(
            self._settings, self._config, arguments, self._hydra_context.config_loader
        )


class ReturnedValue(Callback):
    """Hands what the application's function returned to the sweep, as the values of `metrics`."""

    def __init__(self, metrics: list[str], *, is_needed: bool) -> None:
        """`is_needed`: the application has no other way of saying the trial's value."""
        self._metrics, self._is_needed = list(metrics), is_needed

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Write the file that `automl/objectives/program/program_trial.py` reads."""
        if job_return.status.name != "COMPLETED":
            return  # the program ends with an error, which is the trial's cause
        content = returned_content(
            job_return.return_value, self._metrics, is_needed=self._is_needed
        )
        if content is not None:
            from automl.record.study_files import RETURNED_FILE

            folder = Path(os.environ["AUTOML_CHECKPOINT_DIR"])
            (folder / RETURNED_FILE).write_text(json.dumps(content))


def returned_content(
    returned: object, metrics: list[str], *, is_needed: bool
) -> dict[str, Any] | str | None:
    """Return the metrics that an application returned, or a text that says why there is none; None:
    it returned nothing, and prints or logs its metric instead."""
    if returned is None:
        return (
            "the application returned None: return the value from the function of @hydra.main, or "
            "name a metric that it prints or logs, hydra.sweeper.metric=val_loss"
            if is_needed
            else None
        )
    if isinstance(returned, Mapping):
        return {str(name): plain_value(value) for name, value in returned.items()}
    several = isinstance(returned, list | tuple)
    values = list(returned) if isinstance(returned, list | tuple) else [returned]
    if len(values) != len(metrics) or (several and len(metrics) == 1):
        return (
            f"the application returned {len(values)} value{'s' * (len(values) != 1)} "
            f"({returned!r:.100}), and hydra.sweeper.direction names {len(metrics)}: give a "
            "direction for each value, such as [minimize,maximize]"
        )
    return dict(zip(metrics, map(plain_value, values), strict=True))


def plain_value(value: Any) -> Any:
    """Return a number of any library as a Python number, and anything else as its text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return repr(value)
