"""Execute the notebooks of `docs/notebooks/`, and store what their cells show.

`make notebooks` runs it (ONLY=table: that one). A notebook is changed in its file, by Jupyter or by
hand. `tests/docs/test_notebooks.py` executes each afresh and compares the kinds of outputs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parent / "notebooks"
LIMIT_SECONDS = 600
"""For one cell. Long, since the machine may be busy."""


def notebook_files() -> list[Path]:
    """Return the notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def execute(file: Path, folder: Path) -> Any:
    """Return the notebook as executed in the new `folder`, which gets the tables beside it.

    Raises CellExecutionError where a cell raises.
    """
    shutil.copytree(file.parent, folder, ignore=shutil.ignore_patterns("*.ipynb"))
    notebook: Any = nbformat.read(file, nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    client = NotebookClient(
        notebook,
        timeout=LIMIT_SECONDS,
        record_timing=False,
        startup_timeout=LIMIT_SECONDS,
        # Over TCP the kernel warns that nothing is encrypted.
        config=Config(KernelManager={"transport": "ipc", "ip": f"{folder}-socket"}),
        resources={"metadata": {"path": str(folder)}},
    )
    no_widgets = "ignore:IProgress not found"  # Optuna imports tqdm, which asks for ipywidgets
    client.execute(env={**os.environ, "PATH": path, "PYTHONWARNINGS": no_widgets})
    notebook["metadata"]["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    for cell in code_cells(notebook):
        cell["outputs"] = list(_joined(cell["outputs"]))
    text = nbformat.writes(notebook)  # type: ignore[no-untyped-call]
    text = text.replace(f"{folder}/", "")  # no path of this machine
    return nbformat.reads(text, nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]


def code_cells(notebook: Any) -> list[Any]:
    """Return the cells that are executed."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _joined(outputs: Sequence[Any]) -> Iterator[Any]:
    """Yield the outputs of a cell, with the pieces of a stream that follow each other as one."""
    last: Any = None
    for output in outputs:
        if last is not None and output.get("name") == last.get("name") == "stdout":
            last["text"] += output["text"]
            continue
        last = output
        yield output


def main(names: Sequence[str]) -> int:
    """Execute the notebooks of these names, or all, and write them; return the exit code."""
    chosen = [file for file in notebook_files() if not names or file.stem in names]
    if unknown := set(names) - {file.stem for file in chosen}:
        sys.stderr.write(f"no such notebook: {', '.join(sorted(unknown))}\n")
        return 2
    for file in chosen:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(file, Path(folder) / file.stem)
        nbformat.write(notebook, file)  # type: ignore[no-untyped-call]
        sys.stdout.write(f"{file.name:<28}{time.monotonic() - begun:6.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
