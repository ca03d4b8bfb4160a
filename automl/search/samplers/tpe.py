"""Tree-structured Parzen estimator (Bergstra et al., 2011), by Optuna's sampler.

https://papers.nips.cc/paper/4443-algorithms-for-hyper-parameter-optimization
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import check_positive, check_setting
from automl.search.samplers.by_optuna import INFERRED, OptunaSampler
from automl.search.samplers.family_choice import propose_by_expected_best
from automl.search.samplers.memory_wall import draw_fitting_params
from automl.search.samplers.sampler import OpenSampler, SamplerInputs, sampler_seed
from automl.search.search_space import SpaceParam

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import TPESampler


@dataclass
class TPE(OptunaSampler):
    """Tree-structured Parzen estimator (Bergstra et al., 2011): learns from finished trials."""

    several_metrics: ClassVar[bool] = True

    n_startup_trials: int = 10
    """Number of random trials before the estimator is used."""
    n_ei_candidates: int = 24
    """Number of candidates drawn per proposal."""
    prior_weight: float = 1.0
    """Weight of the prior among the trials that the estimator is made of."""
    consider_magic_clip: bool = True
    """Whether the estimator's widths have a lower limit, so that it does not peak at one point."""
    consider_endpoints: bool = False
    """Whether the ends of a range count as points when widths are computed."""
    multivariate: bool = True
    """Params are modelled together."""
    group: bool = False
    """Params that occur together are modelled together (for spaces with `when`)."""
    constant_liar: bool = True
    """Running trials count as bad ones, so that trials side by side differ."""

    def __post_init__(self) -> None:
        for key in ("n_startup_trials", "n_ei_candidates"):
            value = getattr(self, key)
            check_setting(value >= 1, f"sampler.{key}", value, "must be at least 1.")
        check_positive("sampler.prior_weight", self.prior_weight)
        check_setting(
            self.multivariate or not self.group,
            "sampler.group",
            self.group,
            "needs sampler.multivariate=true.",
        )

    def open(self, search: SamplerInputs) -> OpenSampler:
        """Open the sampler for a study.

        If a param tells the kind of a trial, the kinds share the trials by the best value that each
        may reach, and the params of each kind are modelled together.
        """
        if search.choice is None:
            return super().open(search)
        grouped = replace(self, group=self.multivariate)
        return propose_by_expected_best(super(TPE, grouped).open(search), search, search.choice)

    def n_may_pend(self, n_ended: int) -> int:
        """Return a limit, since proposals that are asked for at once do not learn from each other.

        With this rule the best of 256 trials is within noise of asking one by one; 64 at once have
        lost all of the lead after 64 trials and a third after 256 (experiments/003-asking-ahead).
        """
        return max(4, n_ended // 4)

    def open_for_one_param(self, search: SamplerInputs) -> OpenSampler:
        """Open the sampler without groups, which would be inferred from all other params."""
        return replace(self, group=False).open(search)

    def joint(self, params: tuple[SpaceParam, ...]) -> tuple[SpaceParam, ...] | None:
        if self.group:
            return INFERRED
        return tuple(param for param in params if not param.when) if self.multivariate else ()

    def choose_draw(
        self,
        draw: Callable[[], dict[str, Any]],
        study: Study,
        params: tuple[SpaceParam, ...],
        draw_alone: Callable[[SpaceParam], Any],
    ) -> dict[str, Any]:
        """Return the first draw that is expected to fit on a device, among the random ones, too."""
        from optuna.trial import TrialState

        states = (TrialState.COMPLETE, TrialState.PRUNED)
        ended = study.get_trials(deepcopy=False, states=states)
        ended = [trial for trial in ended if trial.number >= 0]  # earlier ones had other devices
        common = [param for param in params if not param.when]
        return draw_fitting_params(draw, common, ended, draw_alone)

    def make(self, search: SamplerInputs, number: int) -> TPESampler:
        from optuna.samplers import TPESampler

        return TPESampler(
            prior_weight=self.prior_weight,
            consider_magic_clip=self.consider_magic_clip,
            consider_endpoints=self.consider_endpoints,
            n_startup_trials=self.n_startup_trials,
            n_ei_candidates=self.n_ei_candidates,
            multivariate=self.multivariate,
            group=self.group,
            constant_liar=self.constant_liar,
            seed=sampler_seed(search.study_seed, number),
        )
