"""`ui`: serves MLflow's UI over the store of the study's runs.

The file is short because each command is a file of its own; the server is started in
`automl/tracking/view/ui.py`.
"""

from __future__ import annotations

from automl.commands.command_call import CommandCall
from automl.config.command_arguments import UIArguments
from automl.record.studies import study_path
from automl.tracking.view.ui import serve_ui


def run(call: CommandCall) -> int:
    """Serve the UI until Ctrl-C; it opens on the study, if there is one. Raises AutoMLError."""
    config = call.config
    study = None if config.study.name is None else study_path(config.study)
    port = call.typed_arguments(UIArguments).port
    return serve_ui(config.tracking, port, study=study)
