"""Small changes of a module's text, each at one place of its syntax tree: what a slip of a programmer looks like.

Left out is what changes no decision: annotations, docstrings and other texts, arguments of ``raise``, asserts
(they tell the type checker what is known), ``strict=`` of a zip, and imports.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.BitXor: ast.BitOr,
    ast.BitAnd: ast.BitOr,
    ast.RShift: ast.LShift,
    ast.LShift: ast.RShift,
}
_SKIPPED = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr, ast.arg)


@dataclass(frozen=True, slots=True)
class Change:
    """One text of a module replaced by another, at a line."""

    line: int
    old: str
    new: str
    at: str
    """The line as it was."""
    text: str
    """The whole module, changed."""

    def __str__(self) -> str:
        return f"{_short(self.old)} -> {_short(self.new)}"


def changes(source: str) -> list[Change]:
    """All changes of a module, from its first line to its last."""
    module = _Module(source)
    found = {
        change.text: change for node, new in _mutations(module.tree) for change in module.replaced(node, new)
    }
    return sorted(found.values(), key=lambda change: (change.line, change.old, change.new))


class _Module:
    """A module's text, whose nodes can be replaced."""

    def __init__(self, source: str) -> None:
        self.source = source.encode()
        self.tree = ast.parse(source)
        self.lines = self.source.split(b"\n")
        lengths = [len(line) for line in self.lines]
        self.starts = [sum(lengths[:number]) + number for number in range(len(lengths))]

    def replaced(self, node: ast.expr | ast.stmt, new: str) -> Iterator[Change]:
        """The module with another text for a node; nothing if the text is the same."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        old = self.source[start:end].decode()
        if old != new:
            text = (self.source[:start] + new.encode() + self.source[end:]).decode()
            yield Change(node.lineno, old, new, self.lines[node.lineno - 1].decode().strip(), text)


def _mutations(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Nodes below this one, each with a text in its place."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node)
    if isinstance(node, ast.expr):
        yield from _of_expression(node)
    if isinstance(node, _SKIPPED) or (isinstance(node, ast.keyword) and node.arg == "strict"):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield from _mutations(child)


def _of_statement(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    if isinstance(node, ast.Expr | ast.Raise | ast.AugAssign | ast.Continue | ast.Break) or (
        isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple)
    ):
        yield node, "pass"
    if isinstance(node, ast.If) and not _is_for_types(node.test):
        yield from ((node.test, "True"), (node.test, "False"))
    if isinstance(node, ast.While):
        yield node.test, "False"
    if isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node.value, "None"


def _of_expression(node: ast.expr) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.Compare():
            for number, op in enumerate(node.ops):
                turned = copy.deepcopy(node)
                turned.ops[number] = _COMPARISONS[type(op)]()
                yield node, f"({ast.unparse(turned)})"
        case ast.BoolOp():
            other = copy.deepcopy(node)
            other.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, f"({ast.unparse(other)})"
            for number in range(len(node.values)):
                rest = [value for at, value in enumerate(node.values) if at != number]
                left = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
                yield node, f"({ast.unparse(left)})"
        case ast.UnaryOp(op=ast.Not()):
            yield node, f"({ast.unparse(node.operand)})"
        case ast.IfExp():
            yield from ((node, f"({ast.unparse(node.body)})"), (node, f"({ast.unparse(node.orelse)})"))
        case ast.BinOp(op=ast.BitOr()):  # of types, of flags or of mappings: each side alone
            yield from ((node, f"({ast.unparse(node.left)})"), (node, f"({ast.unparse(node.right)})"))
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _is_text(node.left):
            other_sum = copy.deepcopy(node)
            other_sum.op = _ARITHMETIC[type(op)]()
            yield node, f"({ast.unparse(other_sum)})"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() | float() as number):
            yield node, str(number + 1)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            yield from ((condition, "True") for part in node.generators for condition in part.ifs)
        case _:
            return


def _is_text(node: ast.AST) -> bool:
    """A text, or a statement that is nothing else, such as a docstring."""
    inner = node.value if isinstance(node, ast.Expr) else node
    return isinstance(inner, ast.JoinedStr) or (
        isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes)
    )


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."
