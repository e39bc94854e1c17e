"""The features of a layer, and the structure of its inputs and outputs."""

import copy
from collections.abc import Mapping
from typing import Any

from het_tf.python.table.config import FeatureConfig, TableConfig


def _distinct(features: list[FeatureConfig]) -> list[TableConfig]:
    """Returns the tables of the features, each once. ValueError: two of one name have different specs."""
    tables: dict[str, TableConfig] = {}
    for feature in features:
        table = tables.setdefault(feature.table.name, feature.table)
        if table.get_config() != feature.table.get_config():
            raise ValueError(
                f"two tables have the name {table.name!r} and different specs: {table!r} and "
                f"{feature.table!r}; give them different names, or use one TableConfig for both"
            )
    return list(tables.values())


class Features:
    """The features of a collection, and the structure of its inputs and outputs.

    Attributes:
      structure: "dict", "list" or "single".
      keys: The name of each feature in it.
      flat: The features.
      tables: Their tables, each once.
    """

    def __init__(self, features: Any) -> None:
        if isinstance(features, FeatureConfig):
            self.structure, items = "single", [(features.name or features.table.name, features)]
        elif isinstance(features, Mapping):
            self.structure, items = "dict", list(features.items())
        elif isinstance(features, (list, tuple)):
            self.structure, items = "list", [(str(number), one) for number, one in enumerate(features)]
        else:
            raise ValueError(f"features is {features!r}; give a dict, a list or one het_tf.FeatureConfig")
        if not items:
            raise ValueError("features is empty; give at least one het_tf.FeatureConfig")
        for name, feature in items:
            if not isinstance(feature, FeatureConfig):
                raise ValueError(f"features[{name!r}] is {feature!r}; give a het_tf.FeatureConfig")
        self.keys = [name for name, _ in items]
        self.flat = [copy.copy(feature) for _, feature in items]
        for feature, name in zip(self.flat, self.keys, strict=True):
            feature.name = str(name)
        self.tables = _distinct(self.flat)

    def use(self, tables: list[TableConfig]) -> None:
        """Replaces `tables` by these, in order."""
        instead = dict(zip((table.name for table in self.tables), tables, strict=True))
        for feature in self.flat:
            feature.table = instead[feature.table.name]
        self.tables = tables

    def flatten(self, values: Any, what: str, optional: bool = False, shapes: bool = False) -> list[Any]:
        """Returns one value per feature. ValueError: `values` has another structure than the features."""
        if values is None and optional:
            return [None] * len(self.flat)
        if self.structure == "single":
            return [values]
        if self.structure == "dict":
            if not isinstance(values, Mapping):
                raise ValueError(f"{what} is {type(values).__name__}; the features are a dict, give a dict")
            missing = [key for key in self.keys if key not in values]
            if missing and not optional:
                raise ValueError(
                    f"{what} lacks {missing}; the features are {self.keys}, {what} has "
                    f"{sorted(map(str, values))}"
                )
            return [values.get(key) for key in self.keys]
        if not isinstance(values, (list, tuple)) or (not shapes and len(values) != len(self.flat)):
            raise ValueError(f"{what} must be a list of {len(self.flat)}, one for each feature")
        return list(values)

    def pack(self, values: list[Any]) -> Any:
        """The inverse of `flatten`."""
        if self.structure == "single":
            return values[0]
        return dict(zip(self.keys, values, strict=True)) if self.structure == "dict" else values

    def get_config(self) -> dict[str, Any]:
        """Returns JSON, the input of `from_config`; it has a shared table once."""
        tables = {feature.table.base: feature.table.get_config() for feature in self.flat}
        return {
            "structure": self.structure,
            "keys": self.keys,
            "tables": tables,
            "features": [feature.get_config() for feature in self.flat],
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Features":
        """The inverse of `get_config`."""
        tables = {name: TableConfig.from_config(table) for name, table in config["tables"].items()}
        flat = [
            FeatureConfig(**{**feature, "table": tables[feature["table"]]}) for feature in config["features"]
        ]
        if config["structure"] == "single":
            flat[0].name = config["keys"][0]
            return cls(flat[0])
        return cls(flat if config["structure"] == "list" else dict(zip(config["keys"], flat, strict=True)))
