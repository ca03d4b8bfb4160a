"""Makes the pages of nine kinds of studies, and screenshots of each: wide, on a phone, and dark.

    python experiments/023-report/screenshots.py [--to experiments/023-report] [KIND ...]

It needs Chromium, and Pillow for small files.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

sys.path.insert(0, str(Path(__file__).parents[2]))

from PIL import Image
from playwright.sync_api import sync_playwright

from automl.running.features.report_page import make_report
from tests.end_to_end.browser import NAMES
from tests.report.study_kinds import STUDY_KINDS

LOOKS: dict[str, tuple[int, Literal["dark", "light"]]] = {
    "wide": (1400, "light"),
    "dark": (1400, "dark"),
    "phone": (390, "light"),
}
"""The width in pixels, and the scheme of colours, of each screenshot."""
ALWAYS, DARK_TOO = ("wide", "phone"), ("300", "table", "metrics")
N_COLOURS, MAX_WIDTH, MAX_HEIGHT = 24, 640, 9_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", default=[*STUDY_KINDS])
    parser.add_argument("--to", type=Path, default=Path(__file__).parent)
    asked = parser.parse_args()
    program = next(filter(None, map(shutil.which, NAMES)))
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for kind in asked.kinds:
            page = make_report(STUDY_KINDS[kind](Path(folder) / kind))
            for look in (*ALWAYS, *(["dark"] if kind in DARK_TOO else [])):
                width, scheme = LOOKS[look]
                opened = browser.new_page(
                    viewport={"width": width, "height": 900}, color_scheme=scheme
                )
                opened.goto(f"file://{page}")
                picture = Image.open(io.BytesIO(opened.screenshot(full_page=True)))
                shrunk(picture).save(asked.to / f"{kind}-{look}.png", optimize=True)
                opened.close()


def shrunk(picture: Image.Image) -> Image.Image:
    """Return a picture that takes a tenth of a megabyte or less."""
    picture = picture.crop((0, 0, picture.width, min(picture.height, MAX_HEIGHT))).convert("RGB")
    picture.thumbnail((MAX_WIDTH, MAX_HEIGHT))
    return picture.quantize(N_COLOURS, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main()
