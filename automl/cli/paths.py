"""Where `conf/` stands."""

from __future__ import annotations

from pathlib import Path


def conf_dir() -> Path:
    """Inside the package where a wheel was installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inner = package / "conf"
    return inner if inner.is_dir() else package.parent / "conf"
