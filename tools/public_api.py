"""The public names of het_tf with their arguments, as tests/docs/public_api.txt keeps them.

    python tools/public_api.py            # prints them
    python tools/public_api.py --write    # keeps them: after a change that users must follow

One line for each class, function, method and attribute: names, order, kinds and defaults of arguments,
without types. Arguments of a dataclass are its attributes, and have no lines of their own; nor have methods
that Keras or PyTorch calls. het_tf.torch is read, not imported: that needs PyTorch.
"""

import ast
import copy
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "docs" / "public_api.txt"
TORCH = ROOT / "het_tf" / "torch.py", ROOT / "het_tf" / "python" / "layer" / "modules.py"


CALLED = re.compile(
    r"call|forward|build|compute_\w+|count_params|get_config|from_config|(load|save)_own_variables|set_model"
    r"|set_weights|on_(train|epoch|test|predict)_\w+|(get|set)_extra_state"
)


def arguments(function: Any) -> str:
    """The arguments of a function, without types and without `self`."""
    parameters = [
        one.replace(annotation=one.empty)
        for one in inspect.signature(function).parameters.values()
        if one.name not in ("self", "cls")
    ]
    return str(inspect.Signature(parameters))


def is_used(name: str) -> bool:
    """Whether a program uses this name of a class, which is neither private nor called by Keras."""
    return not name.startswith("_") and not CALLED.fullmatch(name)


def members(name: str, kind: type) -> Iterator[str]:
    """What het_tf's own classes in the ancestry of a class define."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("het_tf"):
            found |= {one: value for one, value in vars(base).items() if is_used(one)}
    fields = (
        {field.name for field in dataclasses.fields(kind) if field.init}
        if dataclasses.is_dataclass(kind)
        else set()
    )
    for one, value in sorted(found.items()):
        if one in fields:
            continue
        value = getattr(value, "__func__", value)  # of a classmethod
        yield f"{name}.{one}{arguments(value) if inspect.isfunction(value) else ''}"


def lines(name: str, value: Any) -> Iterator[str]:
    """The lines of one name."""
    if inspect.isclass(value):
        exception = issubclass(value, Exception)
        yield name if exception else f"{name}{arguments(value)}"
        yield from () if exception else members(name, value)
    else:
        yield f"{name}{arguments(value) if callable(value) else ''}"


def exported(source: str) -> list[str]:
    """`__all__` of a module, from its text."""
    return next(
        list(ast.literal_eval(one.value))
        for one in ast.parse(source).body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__all__"
    )


def read(name: str, source: str, public: Iterable[str]) -> Iterator[str]:
    """The lines of public classes of a module, from its text; an ancestor is of the same module."""
    classes = {one.name: one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)}

    def defined(kind: ast.ClassDef) -> dict[str, ast.FunctionDef]:
        bases = [classes[base.id] for base in kind.bases if isinstance(base, ast.Name) and base.id in classes]
        found = {key: one for base in reversed(bases) for key, one in defined(base).items()}
        return found | {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef)}

    def told(function: ast.FunctionDef) -> str:
        if any(isinstance(one, ast.Name) and one.id == "property" for one in function.decorator_list):
            return ""
        of = copy.deepcopy(function.args)
        for one in [*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg]:
            if one is not None:
                one.annotation = None
        of.args = of.args[1:]
        return f"({ast.unparse(of)})"

    for kind in public:
        found = defined(classes[kind])
        yield f"{name}.{kind}{told(found.pop('__init__'))}"
        yield from (f"{name}.{kind}.{one}{told(of)}" for one, of in found.items() if is_used(one))


def of_torch() -> Iterator[str]:
    """The lines of het_tf.torch."""
    front, home = (path.read_text() for path in TORCH)
    return read("het_tf.torch", home, exported(front))


def public_api() -> str:
    """All lines."""
    import het_tf

    found = list(of_torch())
    for name in het_tf.__all__:
        value = getattr(het_tf, name)
        if not inspect.ismodule(value):
            found += lines(f"het_tf.{name}", value)
        else:
            for one in value.__all__:
                found += lines(f"het_tf.{name}.{one}", getattr(value, one))
    return "\n".join(sorted(found)) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        FILE.write_text(public_api())
    else:
        print(public_api(), end="")
