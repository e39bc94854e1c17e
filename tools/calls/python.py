"""Calls of Python in texts: parsed, and bound to the signatures of het_tf."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import typing
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from calls.texts import ANY, Text

START = re.compile(r"(?<![\w./-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?=\()")
DOTTED = re.compile(r"(?<![\w./-])het_tf(?:\.[A-Za-z_]\w*)+")
# Roots of names that are not ours.
FOREIGN = set("tf keras np hvd pd pa pq horovod tensorflow numpy os json math std".split())
# Needs torch, which the environment of these tools lacks: `make test-backends` has its calls.
ELSEWHERE = "het_tf.torch"
# What layers, models and metrics take beside their own arguments.
OF_KERAS = set("name dtype trainable autocast input_shape inputs outputs activity_regularizer".split())
# Who takes the further keywords of a function or class of ours: arguments of these, too.
PASSED_ON = {
    "export": ("het_tf.ext.serving.python.export.native.Backend",),
    "Checkpoint": ("keras.callbacks.ModelCheckpoint",),
}
# Small objects that a text's values are tried on, too.
OPTIONS = {"Store", "Cache", "Bounds", "TableConfig", "Follow"}


@dataclass(frozen=True)
class Instance:
    """Some object of a class."""

    kind: type


class UnknownObject:
    """Nothing is known of the object."""


UNKNOWN = UnknownObject()


@functools.cache
def public() -> dict[str, list[Any]]:
    """By its last name: public functions, classes and methods, and those of Keras that share a name."""
    import het_tf

    named: dict[str, list[Any]] = defaultdict(list)
    for name in het_tf.__all__:
        home = getattr(het_tf, name)
        for value in [getattr(home, one) for one in home.__all__] if inspect.ismodule(home) else [home]:
            if not callable(value):
                continue
            named[value.__name__].append(value)
            for inner, member in inspect.getmembers(value, callable) if inspect.isclass(value) else ():
                module = getattr(member, "__module__", None) or ""
                if not inner.startswith("_") and module.startswith("het_tf"):
                    named[inner].append(Method(member, value))
    ours = set(named)
    for other in _foreign():
        found = {name: getattr(other, name, None) for name in ours & set(dir(other))}
        for name, value in found.items():
            if callable(value):
                named[name].append(value)
    return named


class Reader:
    """Reads texts, one after the other."""

    def __init__(self) -> None:
        self._het_tf = importlib.import_module("het_tf")
        self._named = public()
        self._names: dict[str, Any] = {}
        self._faults: list[str] = []
        self._count = 0

    def read(self, text: Text) -> tuple[int, list[str]]:
        """Returns how many calls were bound, and the faults."""
        self._count, self._faults, self._names = 0, [], {"het_tf": self._het_tf}
        for block in text.python:
            block = re.sub(r"^>>> |^\.\.\. ", "", block, flags=re.MULTILINE)
            try:
                tree = ast.parse(block)
            except SyntaxError:
                self._prose(block)
                continue
            self._block(tree)
        self._prose(text.prose)
        return self._count, self._faults

    # --- prose ------------------------------------------------------------------------------------

    def _prose(self, text: str) -> None:
        for match in DOTTED.finditer(text):
            if not text[match.end() :].startswith(("(", "/", "-", "_")):
                self._evaluate(ast.parse(match[0], mode="eval").body, match[0])
        for match in START.finditer(text):
            root = match[0].split(".")[0]
            if root in FOREIGN or (root in self._names and root != "het_tf" and "." not in match[0]):
                continue
            last = match[0].rpartition(".")[2]
            if root != "het_tf" and last not in self._named:
                continue
            expression = call_at(text, match.start())
            if expression is None:
                continue
            try:
                tree = ast.parse(completed(expression), mode="eval").body
            except SyntaxError as error:
                if root == "het_tf":
                    self._faults.append(f"{expression!r} is no Python: {error.msg}")
                continue
            if isinstance(tree, ast.Call | ast.Attribute):
                self._chain(tree, expression)

    def _chain(self, tree: ast.expr, source: str) -> None:
        """Binds a call of a text, whose first name may be any public one or some object."""
        value = self._evaluate(tree, source)
        inner = tree
        while isinstance(value, UnknownObject) and isinstance(inner, ast.Call | ast.Attribute):
            function = inner.func if isinstance(inner, ast.Call) else inner.value
            if isinstance(inner, ast.Call) and isinstance(function, ast.Name | ast.Attribute):
                name = function.id if isinstance(function, ast.Name) else function.attr
                below = (
                    UNKNOWN
                    if isinstance(function, ast.Name)
                    else self._evaluate(function.value, source, False)
                )
                if isinstance(below, UnknownObject) and name in self._named:
                    self._any(self._named[name], inner, source)
            inner = function

    def _any(self, candidates: list[Any], call: ast.Call, source: str) -> None:
        self._count += 1
        wrong = [why for one in candidates if (why := refused(one, call))]
        if len(wrong) == len(candidates):
            self._faults.append(f"{source!r}: {wrong[0]}")

    # --- blocks -----------------------------------------------------------------------------------

    def _block(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):  # imports and assignments come in the order of lines
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
        for statement in tree.body:
            for node in ast.walk(statement):
                if isinstance(node, ast.Call):
                    self._evaluate(node, ast.unparse(node))
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._names[statement.targets[0].id] = self._evaluate(statement.value, "", False)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            whole = isinstance(node, ast.Import)
            module = alias.name if isinstance(node, ast.Import) else node.module or ""
            if module.split(".")[0] != "het_tf" or module == ELSEWHERE:
                continue
            try:
                found = importlib.import_module(module)
                found = found if whole else getattr(found, alias.name)
            except (ImportError, AttributeError) as error:
                self._faults.append(f"{ast.unparse(node)!r}: {error}")
                continue
            if whole and not alias.asname:
                self._names["het_tf"] = self._het_tf
            else:
                self._names[alias.asname or alias.name] = found

    # --- expressions ------------------------------------------------------------------------------

    def _evaluate(self, node: ast.expr, source: str, report: bool = True) -> Any:
        """What an expression is, as far as that is known; reports what does not bind."""
        if isinstance(node, ast.Name):
            return self._names.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            return self._attribute(self._evaluate(node.value, source, report), node.attr, source, report)
        if not isinstance(node, ast.Call):
            return UNKNOWN
        function = self._evaluate(node.func, source, report)
        if isinstance(function, UnknownObject | Instance):
            return UNKNOWN
        why = refused(function, node)
        if report:
            self._count += 1
            why = why or unmade(function, node)
            if why:
                self._faults.append(f"{source!r}: {why}")
        if inspect.isclass(function):
            return Instance(function)
        try:
            kind = typing.get_type_hints(getattr(function, "function", function)).get("return")
        except Exception:
            return UNKNOWN
        return Instance(kind) if inspect.isclass(kind) and kind.__module__.startswith("het_tf") else UNKNOWN

    def _attribute(self, value: Any, name: str, source: str, report: bool) -> Any:
        if isinstance(value, UnknownObject | Method) or name == ANY:
            return UNKNOWN
        if value is self._het_tf and f"het_tf.{name}" == ELSEWHERE:
            return UNKNOWN
        if isinstance(value, Instance):
            if hasattr(value.kind, name):
                member = getattr(value.kind, name)
                return Method(member, value.kind) if inspect.isroutine(member) else UNKNOWN
            known = any(
                name in getattr(kind, "__annotations__", {}) or f"self.{name}" in _source(kind)
                for kind in value.kind.__mro__
            )
            if not known and report:
                self._faults.append(f"{source!r}: {value.kind.__name__} has no {name!r}")
            return UNKNOWN
        if inspect.ismodule(value) and value.__name__.startswith("het_tf") and not hasattr(value, name):
            try:
                return importlib.import_module(f"{value.__name__}.{name}")
            except ImportError:
                pass
        if hasattr(value, name):
            return getattr(value, name)
        if report:
            self._faults.append(f"{source!r}: {getattr(value, '__name__', value)} has no {name!r}")
        return UNKNOWN


@dataclass(frozen=True)
class Method:
    """A method of some object."""

    function: Any
    kind: type


def _foreign() -> list[Any]:
    import keras
    import tensorflow as tf

    return [
        keras.Model, keras.Sequential, keras.layers, keras.layers.Layer, keras.optimizers, keras.callbacks,
        keras.callbacks.Callback, keras.metrics, keras.initializers, keras.models, tf.data.Dataset, tf,
        tf.saved_model, keras, dict, str, list, set, tf.train, tf.io,
    ]  # fmt: skip


def _source(kind: type) -> str:
    try:
        return inspect.getsource(kind) if kind.__module__.startswith("het_tf") else ""
    except (OSError, TypeError):
        return ""


def refused(function: Any, call: ast.Call) -> str | None:
    """Why the arguments do not bind to a function, a class or a Method; None if they do."""
    method = isinstance(function, Method)
    target, kind = (function.function, function.kind) if method else (function, None)
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    names = [keyword.arg for keyword in call.keywords if (keyword.arg or "").strip(ANY)]
    positional = [one for one in call.args if not isinstance(one, ast.Starred)]
    if positional and isinstance(positional[-1], ast.Constant) and positional[-1].value is ...:
        positional.pop()  # "and others"
    if method and not isinstance(
        inspect.getattr_static(kind, target.__name__, None), classmethod | staticmethod
    ):
        positional.insert(0, call)
    try:
        signature.bind_partial(*positional, **dict.fromkeys(names))
    except TypeError as error:
        return f"{getattr(target, '__qualname__', target)}: {error}"
    rest = [one.name for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD]
    name = getattr(target, "__name__", "")
    if not rest or not (getattr(target, "__module__", None) or "").startswith("het_tf"):
        return None
    if rest != ["kwargs"] and name not in PASSED_ON:
        return None  # any
    allowed = OF_KERAS | _taken(target)
    for path in PASSED_ON.get(name, ()):
        module, _, attribute = path.rpartition(".")
        allowed |= _taken(getattr(importlib.import_module(module), attribute))
    wrong = [one for one in names if one not in allowed]
    return f"{name} takes no argument {wrong[0]!r}" if wrong else None


def unmade(function: Any, call: ast.Call) -> str | None:
    """Why an object of options cannot be made of a text's values; None if it can, or if some lack."""
    if getattr(function, "__name__", "") not in OPTIONS or not function.__module__.startswith("het_tf"):
        return None
    try:
        positional = [ast.literal_eval(one) for one in call.args]
        named = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in call.keywords}
        if ... not in positional and ... not in named.values():
            function(*positional, **named)
    except (TypeError, ValueError) as error:
        # literal_eval refuses names, and a text that shows two arguments may leave out a third one.
        return None if re.match("malformed node|missing|.*__init__", str(error)) else str(error)
    return None


def _taken(target: Any) -> set[str]:
    """The names of all arguments of a function, or of a class and those that it passes them on to."""
    makers = (
        [base.__init__ for base in target.__mro__ if "__init__" in vars(base)]
        if inspect.isclass(target)
        else []
    )
    return {name for function in [target, *makers] for name in _parameters(function)}


def _parameters(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()


def call_at(text: str, begin: int) -> str | None:
    """The call that begins there, with calls of its result; None if its bracket is not closed."""
    end = begin
    while match := re.compile(r"(?:\.?[A-Za-z_]\w*)*\(").match(text, end):
        end = match.end()
        depth, quote = 1, ""
        while depth and end < len(text):
            letter = text[end]
            if quote:
                quote = "" if letter == quote else quote
            elif letter in "\"'" and not (letter == "'" and text[end - 1].isalnum()):
                quote = letter
            else:
                depth += (letter in "([{") - (letter in ")]}")
            end += 1
        if depth:
            return None
    return text[begin:end]


def completed(expression: str) -> str:
    """An expression with values for what a text leaves out."""
    expression = re.sub(r"\s*\n\s*", " ", expression)
    expression = re.sub(r"=\s*(?=[,)])", f"={ANY}", expression)
    return re.sub(r"(=[^=,()]*),\s*\.\.\.\s*(?=\))", r"\1", expression)  # "and others" behind a keyword
