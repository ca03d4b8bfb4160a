"""Read names, signatures and docstrings from source files, without importing them.

The reference of Python names is made of these, so that building it loads no torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def definition(module: str, name: str) -> ast.ClassDef | Function:
    """Return the definition of a class or function at the top of a module (`automl.errors`)."""
    tree = ast.parse(_file(module).read_text("utf-8"))
    found = [n for n in tree.body if isinstance(n, ast.ClassDef | Function) and n.name == name]
    return found[-1]  # the implementation follows its overloads


def signature(function: Function) -> str:
    """Return the name and the arguments with their defaults, without types and `self`."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    shown = [
        _argument(argument, default)
        for argument, default in zip(positional, defaults, strict=True)
        if argument.arg not in ("self", "cls")
    ]
    if arguments.vararg is not None:
        shown.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        shown.append("*")
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    shown += [_argument(argument, default) for argument, default in keywords]
    if arguments.kwarg is not None:
        shown.append(f"**{arguments.kwarg.arg}")
    return f"{function.name}({', '.join(shown)})"


def members(owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the public attributes, properties and methods of a class with their docstrings."""
    for entry, following in zip(owner.body, [*owner.body[1:], None], strict=True):
        if isinstance(entry, ast.AnnAssign) and isinstance(entry.target, ast.Name):
            if not entry.target.id.startswith("_"):
                yield entry.target.id, _text_below(following)
        elif isinstance(entry, Function) and entry.name == "__init__":
            yield from _instance_attributes(entry)
        elif isinstance(entry, Function) and not entry.name.startswith("_"):
            marks = {ast.unparse(mark).split(".")[-1] for mark in entry.decorator_list}
            if "overload" not in marks:
                is_value = marks & {"property", "cached_property"}
                yield entry.name if is_value else signature(entry), docstring(entry)


def _instance_attributes(initialiser: Function) -> Iterator[tuple[str, str]]:
    """Yield the public attributes that `__init__` sets and describes."""
    for entry, following in zip(initialiser.body, [*initialiser.body[1:], None], strict=True):
        target: ast.expr | None = entry.target if isinstance(entry, ast.AnnAssign) else None
        if isinstance(entry, ast.Assign):
            target = entry.targets[0]
        text = _text_below(following)
        if text and isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            yield target.attr, text


def docstring(node: ast.ClassDef | Function) -> str:
    return ast.get_docstring(node) or ""


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"


def _text_below(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""
