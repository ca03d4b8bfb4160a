"""Make the pictures of the pages: a sweep in a terminal, its report, and MLflow's UI.

`make pictures` sweeps in a temporary folder and writes `docs/pictures/*.png`. It needs Chromium.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from ptyprocess import PtyProcess
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.end_to_end.browser import NAMES
from tests.end_to_end.server import free_port

FOLDER = Path(__file__).parent / "pictures"
COMMAND = "automl name=first n_trials=60"
COLUMNS, ROWS = 112, 30
REPORT_HEIGHT = 1_620
N_COLOURS = 48
LIMIT_SECONDS = 300
ERASED = re.compile(r"(\r?\x1b\[2K(?:\x1b\[1A\x1b\[2K)*)")
"""What rich writes before it draws a table anew: each line of the last one is erased."""
PAGE = """<body style="margin:0"><pre style="margin:0;padding:16px 20px;width:max-content;
background:#1b1f24;color:#d8dee4;font:14px/1.35 'DejaVu Sans Mono',monospace">{code}</pre></body>"""


def sweep(folder: Path) -> list[str]:
    """Run the sweep in a terminal, and return its screen as it was in the middle, by lines."""
    program = PtyProcess.spawn(
        [str(Path(sys.executable).parent / "automl"), *COMMAND.split()[1:]],
        cwd=str(folder),
        env={**os.environ, "TERM": "xterm-256color"},
        dimensions=(ROWS, COLUMNS),
    )
    output = bytearray()
    while True:
        try:
            output += program.read(65536)
        except EOFError:
            break
    if program.wait() != 0:
        raise RuntimeError(output.decode())
    screens = [lines for lines in _screens(output.decode()) if _is_full("\n".join(lines))]
    return [f"$ {COMMAND}", *screens[len(screens) // 2]]


def _is_full(screen: str) -> bool:
    """Return whether two trials run that have reported."""
    return screen.count("val_loss ") >= 3 and "not looked at" not in screen


def _screens(output: str) -> Iterator[list[str]]:
    """Yield the lines on the screen each time that a table had been drawn."""
    lines: list[str] = []
    for piece in ERASED.split(re.sub(r"\x1b\[\?25[hl]", "", output)):
        if ERASED.fullmatch(piece):
            del lines[-(piece.count("\x1b[1A") + 1) :]
            continue
        lines += piece.replace("\r", "").split("\n")
        yield list(lines)


def terminal_page(lines: list[str]) -> str:
    """Return a page that shows these lines, with their colours, as a terminal does."""
    console = Console(file=io.StringIO(), record=True, width=COLUMNS, force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False)
    return console.export_html(inline_styles=True, code_format=PAGE, theme=MONOKAI)


@contextmanager
def mlflow_ui(folder: Path) -> Iterator[str]:
    """Serve MLflow's UI, and yield the address of the study."""
    server = subprocess.Popen(
        [sys.executable, "-m", "automl", "ui", "first", f"port={free_port()}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert server.stdout is not None
    try:
        for line in server.stdout:
            if found := re.search(r"http://\S+#/experiments\S+", line):
                yield found[0]
                return
        raise RuntimeError("the UI named no address")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def save(png: bytes, name: str) -> None:
    """Write a screenshot as a file of few colours."""
    picture: Any = Image.open(io.BytesIO(png)).convert("RGB")
    small = picture.quantize(N_COLOURS, dither=Image.Dither.NONE)
    small.save(FOLDER / f"{name}.png", optimize=True)


def take(browser: Browser, folder: Path) -> None:
    """Make all pictures of one sweep."""
    page = browser.new_page(viewport={"width": 1000, "height": 1150})
    page.set_content(terminal_page(sweep(folder)))
    save(page.locator("pre").screenshot(), "sweep")
    page.goto((folder / "studies" / "first" / "report.html").as_uri())
    page.set_viewport_size({"width": 1000, "height": REPORT_HEIGHT})
    save(page.screenshot(), "report")
    page.close()
    with mlflow_ui(folder) as address:
        page = browser.new_page(viewport={"width": 1400, "height": 760})
        page.set_default_timeout(LIMIT_SECONDS * 1000)
        page.goto(address)
        page.get_by_text("trial-0000").first.wait_for()
        page.wait_for_timeout(3000)
        save(page.screenshot(), "mlflow-runs")
        page.goto(f"{address}&compareRunsMode=CHART")
        page.reload()
        page.locator("svg.main-svg").nth(3).wait_for()
        page.wait_for_timeout(3000)
        save(page.screenshot(), "mlflow-charts")
        page.close()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    chromium = next(filter(None, map(shutil.which, NAMES)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, Path(folder))


if __name__ == "__main__":
    main()
