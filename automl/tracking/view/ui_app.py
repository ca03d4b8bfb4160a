"""The MLflow server that `ui` starts: MLflow's own, with first choices for a new browser.

MLflow 3 opens the page of a run on its GenAI side, whatever the address says, and a panel over a
third of the window, until the browser has noted another choice. The keys are not documented: read
in the JavaScript of MLflow 3.17 (`useLocalStorage`). A choice that the browser has noted stays.

It is a file of its own because MLflow loads it by entry point in the server's process.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_FIRST_CHOICES = {
    "mlflow.workflowType_v1": "machine_learning",
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True,
}
_SCRIPT = f"""<script>
for (const [key, value] of Object.entries({json.dumps(_FIRST_CHOICES)}))
    if (localStorage.getItem(key) === null) localStorage.setItem(key, JSON.stringify(value));
</script>"""


def make_app() -> Any:
    """Return the ASGI application; called in the process that serves, by its entry point."""
    from mlflow.server import app as pages
    from mlflow.server.fastapi_app import app

    index = Path(str(pages.static_folder)) / "index.html"
    # The page is not sent as a file, else a browser would use its copy from another server.
    pages.view_functions["serve"] = lambda: with_first_choices(index.read_text(encoding="utf-8"))
    return app


def with_first_choices(page: str) -> str:
    """Return MLflow's page with the script before all others."""
    return page.replace("<head>", f"<head>{_SCRIPT}", 1)
