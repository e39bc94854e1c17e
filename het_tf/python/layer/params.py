"""The number of a layer's parameters for `model.summary()`, with rows and bytes."""

from typing import Any

from het_tf.python import show
from het_tf.python.table.config import TableConfig
from het_tf.python.table.table import Table


class Params(int):
    """A number that Keras prints with an additional text."""

    text = ""

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return self.text


def of_tables(namespace: str, configs: list[TableConfig]) -> Any:
    """Returns the floats of all rows, in all tables together."""
    tables = [Table(config.name, namespace) for config in configs]
    sizes = [table.size for table in tables]
    params = Params(sum(size * table.dim for size, table in zip(sizes, tables, strict=True)))
    size = show.size(sum(table.bytes for table in tables))
    params.text = f"{int(params):,} in {sum(sizes):,} rows, {size}"
    return params
