"""Which addresses of a Ray cluster are refused before anything is asked."""

from __future__ import annotations

import pytest

from automl.errors import ConfigError
from automl.execution.cluster.on_ray import _look_for


def test_rays_own_variable_is_refused_as_the_setting_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ray.address=auto Ray would take it, and every report a way through its client server."""
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ConfigError, match="RAY_ADDRESS=ray://head:10001"):
        _look_for("auto")
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    _look_for("auto")
