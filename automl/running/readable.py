"""Values as people read them: times, params, the names of devices."""

from __future__ import annotations

import re

from rich.text import Text

from automl.record.texts import fit_line
from automl.training.auto.family import FAMILY
from automl.trial import Params, ParamValue


def params_text(params: Params) -> str:
    """`depth 3, lr 0.012`; of a trial of one of several families `mlp: depth 3, lr 0.012`."""
    family = params.get(FAMILY)
    own = {name: of for name, of in params.items() if name.startswith(f"{family}_")}
    if not own or len(own) < len(params) - 1:
        return ", ".join(f"{name} {value_text(value)}" for name, value in params.items())
    shown = (f"{n.removeprefix(f'{family}_')} {value_text(value)}" for n, value in own.items())
    return f"{family}: {', '.join(shown)}"


def value_text(value: ParamValue) -> str:
    return f"{value:.4g}" if isinstance(value, float) else fit_line(str(value))


def clock(seconds: float) -> str:
    """`12 s`, `3:05`, `1:02:03`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def short_device(device: str) -> str:
    """`NVIDIA H200 GPU-8f3a12b4-…` → `H200 GPU-8f3a12b4`: enough to tell the GPUs of a machine."""
    text = re.sub(r"\b((?:GPU|MIG)-[0-9a-f]{8})[0-9a-f-]+", r"\1", device)
    return re.sub(r"^NVIDIA (GeForce )?", "", text)


def cut(text: str, width: int) -> str:
    """`text` in one line of at most `width` columns."""
    line = Text(text)
    line.truncate(max(1, width), overflow="ellipsis")
    return line.plain
