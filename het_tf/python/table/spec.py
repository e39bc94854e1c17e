"""The base of optimizers and initializers: a name, numbers, and conversion to JSON and back."""

import json
import math
from typing import Any, ClassVar

from het_tf.python.session import native


class SpecObject:
    """An object that the core knows by a name and a few numbers.

    Attributes:
      _name: Its name in the core.
      _kind: "optimizer" or "initializer", for messages.
      arguments: The constructor's arguments by name, with the core's defaults in place of None.
    """

    _name: ClassVar[str]
    _kind: ClassVar[str]

    def __init__(self, **arguments: Any) -> None:
        for argument, value in arguments.items():
            if value is not None:
                check_number(value, f"{type(self).__name__}({argument}=...)")
        self.arguments = dict(arguments)
        # The core checks the rest, as part of a table: "table 'any': optimizer ...".
        spec = {"name": "any", "dim": 1, self._kind: self._to_spec()}
        try:
            holds = json.loads(native.call("HetCheckSpec", json.dumps(spec)))[self._kind]
        except ValueError as error:
            raise ValueError(str(error).partition(": ")[2]) from None
        defaults = holds.get("params", {})
        self.arguments = {
            name: defaults.get(name) if value is None else value for name, value in arguments.items()
        }

    def _to_spec(self) -> dict[str, Any]:
        """Returns the core's form."""
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns JSON, the input of `from_config`."""
        return {"name": self._name, **self.arguments}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.get_config() == self.get_config()

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{type(self).__name__}({arguments})"


def check_number(value: Any, what: str) -> None:
    """Raises ValueError unless `value` is a finite number (or a bool)."""
    try:
        finite = math.isfinite(float(value))
    except (TypeError, ValueError):
        finite = False
    if not finite:
        raise ValueError(f"{what} is {value!r}; give a finite number")


def lookup_by_name(
    given: Any, default: type[SpecObject], classes: tuple[type[SpecObject], ...], kind: str, where: str
) -> SpecObject:
    """Returns `given` as an object: itself, by name, from its config, or `default()` for None."""
    known = {cls._name: cls for cls in classes}
    if given is None:
        return default()
    if isinstance(given, SpecObject) and given._kind == kind:
        return given
    name, arguments = given, {}
    if isinstance(given, dict):
        arguments = dict(given)
        name = arguments.pop("name", None)
    if isinstance(name, str):
        by_class_name = {cls.__name__.lower(): cls for cls in classes}
        cls = known.get(name.lower()) or by_class_name.get(name.lower())
        if cls is not None:
            return cls(**arguments)
    listed = ", ".join(f'"{one}"' for one in known)
    raise ValueError(f"{kind} is {given!r}; give one of {listed}, or an instance of a class of {where}")
