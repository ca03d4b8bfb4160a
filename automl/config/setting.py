"""Marks each setting with who changes it, by which `automl help settings` and the reference sort.

The numbers of settings are budgeted in `tests/test_concepts.py`: a new setting names the one that
goes. The file is apart, because each file of settings imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias, get_type_hints

Who: TypeAlias = Literal["all", "some", "few", "option", "nobody"]
"""Who changes a setting. all: everyone; some: listed for them; few: on the reference page alone;
option: whoever chooses the one option that reads it; nobody: a sweep itself sets it."""


def setting(who: Who, default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """Return the field of a setting with its default, or the function that makes it."""
    metadata = {"who": who}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(config: type) -> Iterator[tuple[str, Who]]:
    """Yield the dotted key of each setting in the sections of a config, and who changes it.

    Sections whose options have keys of their own (models, samplers, pruners) have none here.
    """
    hints = get_type_hints(config)
    for section in fields(config):
        hint = hints[section.name]
        for key in fields(hint) if is_dataclass(hint) and isinstance(hint, type) else ():
            if "who" in key.metadata:
                yield f"{section.name}.{key.name}", key.metadata["who"]
