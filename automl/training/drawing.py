"""Pictures: the only module that knows matplotlib. Nothing of it is global, so that threads and
notebooks that draw themselves are not disturbed."""

from __future__ import annotations

import warnings
from io import BytesIO

from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """In inches."""
    return Figure(figsize=(width, height), layout="constrained")


def png(figure: Figure) -> bytes:
    """The file of a figure."""
    file = BytesIO()
    with warnings.catch_warnings():  # a name in letters that the font lacks gets boxes
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()
