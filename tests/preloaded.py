"""What the fork server of tests has loaded: all that a worker, survey or timing of theirs needs.

Else each loads by itself what the sweep lacks that happened to start the server: torch in 1.4 s of
a core, its optimizers in 1.3 s, scikit-learn in 1 s.
"""

from __future__ import annotations

import importlib

from automl.models.families.auto.family import AutoFamily

SURVEYS = ("automl.measure.gain.child", "automl.measure.survey.survey_run")

for name in (*AutoFamily().modules, *SURVEYS):
    importlib.import_module(name)
