"""The names that are public (`docs/reference/public.md`), as the code has them now and as listed.

`python -m tests.docs.public` adds new names to the list. It removes none: a name that went away
fails `test_public.py` until somebody decides that it may.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import automl
from automl.cli.command_registry import COMMANDS
from automl.cli.config_keys import OPTIONS_BY_CLASS, config_groups, config_keys
from automl.cli.short_words import SHORT_WORDS
from automl.config import Config
from automl.config.command_arguments import argument_fields
from automl.config.setting import settings_of
from automl.record.event_log import EVENT_KINDS
from docs.environment import ENVIRONMENT
from docs.generate import ESTIMATORS, RETURNED
from docs.source_texts import definition, members
from tests.manuals import ROOT, section

LIST = Path(__file__).parent / "public_names.txt"


def public_names() -> set[str]:
    """Return each public name with its kind before it."""
    return {*_words(), *_settings(), *_python(), *_records()}


def listed_names() -> set[str]:
    return set(LIST.read_text("utf-8").splitlines())


def _words() -> Iterator[str]:
    for name, command in COMMANDS.items():
        yield f"command {name}"
        yield from (f"argument {name}.{word}" for word in argument_fields(command.arguments))
    yield from (f"short word {word}" for word in SHORT_WORDS)
    yield from (f"exit code {code}" for code in re.findall(r"^\| (\d+) \|", _exit_codes(), re.M))
    extras = metadata.metadata("automl-sweep").get_all("Provides-Extra") or []
    yield from (f"extra {extra}" for extra in {*extras} - {"dev", "recipes"})


def _exit_codes() -> str:
    return section("Exit codes")


def _settings() -> Iterator[str]:
    yield from (f"setting {key}" for key, who in settings_of(Config) if who != "nobody")
    for group in config_groups():
        folder = ROOT / "conf" / group
        yield from (f"option {group}={file.stem}" for file in folder.glob("*.yaml"))
        for cls in OPTIONS_BY_CLASS.get(group, {}).values():
            yield from (f"setting {group}.{key}" for key in config_keys(cls))


def _python() -> Iterator[str]:
    yield from (f"python automl.{name}" for name in automl.__all__)
    classes = (*RETURNED, *(("automl.sklearn", name) for name in ESTIMATORS))
    for module, name in (*classes, ("automl.in_trial.trial_context", "TrialContext")):
        found = definition(module, name)
        assert isinstance(found, ast.ClassDef), f"{name} is a class"
        yield from (f"python {name}.{text.partition('(')[0]}" for text, _ in members(found))


def _records() -> Iterator[str]:
    for name, kind in EVENT_KINDS.items():
        yield from (f"event {name}.{field.name}" for field in dataclasses.fields(kind))
    page = (ROOT / "docs" / "reference" / "json.md").read_text("utf-8")
    for title, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.M | re.S):
        for block in re.findall(r"```json\n(.*?)\n```", text, re.S):
            yield from (f"json {title.replace('`', '')}: {key}" for key in json.loads(block))
    yield from (f"environment {name}" for name in ENVIRONMENT if name.startswith("AUTOML_"))


if __name__ == "__main__":
    names = public_names() | (listed_names() if LIST.exists() else set())
    LIST.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")
