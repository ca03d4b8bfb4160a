"""What the process of a survey is told to do; for `automl.execution.remote.call_confined`.

To be loaded in the fork server: what a survey needs of torch takes 1.4 s to load, every time else.
"""

from __future__ import annotations

import torch
import torch._dynamo  # fakes and optimizers load it when the first is made

from automl.training.plan import SurveySetup
from automl.training.session import open_objective
from automl.training.survey.found import Survey, Unsurveyed
from automl.training.survey.run import survey_objective


def survey(setup: SurveySetup) -> Survey | Unsurveyed:
    """See `survey_objective`. It changes torch: this process must not train afterwards.

    Raises ConfigError where the objective cannot be had.
    """
    torch.set_num_threads(1)
    objective = open_objective(setup.session)
    plan = setup.session.plan
    return survey_objective(objective, setup.spec, plan.metric, refit=plan.refit is not None)
