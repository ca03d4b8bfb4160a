"""What settings are where nobody sets them."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")


def defaults_of(cls: type[Any]) -> dict[str, Any]:
    """The default of each field of a dataclass that has one, by name."""
    found = {field.name: _default(field) for field in fields(cls)}
    return {name: value for name, value in found.items() if value is not MISSING}


def unset(cls: type[T]) -> T:
    """An instance with nothing set, and unchecked: some options cannot be without a setting."""
    instance = cls.__new__(cls)
    for name, value in defaults_of(cls).items():
        setattr(instance, name, value)
    return instance


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
