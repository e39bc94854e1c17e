"""The Keras layer of a single feature (public as `het_tf.keras.Embedding`)."""

import logging
from typing import Any

from het_tf.python.backend import keras
from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.table.config import Combiner, FeatureConfig, Stored, TableConfig
from het_tf.python.table.initializers import Initializer, of_keras
from het_tf.python.table.optimizers import Optimizer

log = logging.getLogger("het_tf")


@keras.utils.register_keras_serializable(package="het_tf")
class Embedding(EmbeddingCollection):
    """One feature and its table, like `keras.layers.Embedding` without a size.

        embed = het_tf.keras.Embedding(16, name="item", optimizer=het_tf.optimizers.Adam(1e-3))

        ids                                    combiner     rows
        [B]                                    None         [B, 16]
        [B, L]                                 None         [B, L, 16]
        [B, L], or ragged [B, (L)]             "mean"       [B, 16]

    Caches, optimizers and training are as in `EmbeddingCollection`, with a tensor
    in place of the dict:

        cached = het_tf.keras.Embedding(16, name="item", cache=het_tf.Cache(rows=100_000,
        staleness=10))

    Args:
      dim: Floats of a row, 1 to 65536. Or a TableConfig, without further arguments of the
        table.
      combiner: None, "sum", "mean" or "sqrtn" over the last axis of the ids.
      padding_id: This id reads zeros, is not trained and is masked (`mask_zero=True` of Keras is
        `padding_id=0`).
      table: Name of the table; default: the name of the layer. Layers with one table name share the
        table. A layer without both has its own table, which is removed with it.
      optimizer, initializer, seed, l2, max_norm, stored: See `het_tf.TableConfig`.
      max_sequence_length: See `het_tf.FeatureConfig`.
      **kwargs: Arguments of EmbeddingCollection: cache, reuse, name, dtype, trainable. Of
        `keras.layers.Embedding`: output_dim is dim, mask_zero=True is padding_id=0, embeddings_initializer is
        initializer; input_dim and input_length are ignored with a line; others are a TypeError that says what
        to write.

    Call arguments, returns and errors: as in EmbeddingCollection.
    """

    def __init__(
        self,
        dim: int | TableConfig | None = None,
        combiner: Combiner | None = None,
        padding_id: int | None = None,
        table: str | None = None,
        optimizer: str | Optimizer | None = None,
        initializer: str | Initializer | None = None,
        seed: int = 0,
        l2: float = 0.0,
        max_norm: float | None = None,
        max_sequence_length: int | None = None,
        stored: Stored = "float32",
        **kwargs: Any,
    ) -> None:
        dim, padding_id, initializer = _take_of_keras(dim, combiner, padding_id, initializer, kwargs)
        if dim is None and "features" not in kwargs:
            raise ValueError("dim is None; give the number of floats of a row, or a het_tf.TableConfig")
        unnamed = table is None and kwargs.get("name") is None

        def feature(name: str) -> FeatureConfig:
            if isinstance(dim, TableConfig):
                config = dim
            else:
                config = TableConfig(
                    table or name, dim or 0, optimizer, initializer, seed, l2, max_norm, stored
                )
                config.unnamed = unnamed
            return FeatureConfig(config, combiner, padding_id, max_sequence_length, name=name)

        super().__init__(kwargs.pop("features", feature), **kwargs)

    def _resolve(self, features: Any) -> Any:
        return features(self.name)

    def _file_keys(self, tables: list[TableConfig]) -> dict[str, str]:
        """A single table needs no name; Keras may have numbered the layer's name."""
        return {"table": tables[0].name}


# Arguments of keras.layers.Embedding without an effect here, and those with another spelling.
_IGNORED = {
    "input_dim": "a table has no size, and every id is legal",
    "input_length": "ids may have any length",
}
_REFUSED = {
    "weights": 'set the rows after the layer is made: het_tf.Table("{table}").assign(range({count}), rows)',
    "embeddings_regularizer": "write l2={l2}, which acts on the rows of each step",
    "embeddings_constraint": "write max_norm={max_value}, the longest that a row may be",
    "lora_rank": "leave it out",
}


def _take_of_keras(
    dim: Any, combiner: Any, padding_id: Any, initializer: Any, kwargs: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """Takes the arguments of keras.layers.Embedding out of `kwargs`.

    Returns:
      dim, padding_id and initializer.

    Raises:
      TypeError: One has another spelling here, which the message gives; or both spellings are given.
    """
    name = kwargs.get("name")
    if isinstance(combiner, int) or (isinstance(dim, int) and "output_dim" in kwargs):
        width = combiner if isinstance(combiner, int) else kwargs["output_dim"]
        raise TypeError(
            f"Embedding({dim!r}, {width!r}) has the arguments of keras.layers.Embedding, a number of ids "
            f"and a dim; a table here has no size: write Embedding({width!r})"
        )
    for argument, reason in _IGNORED.items():
        if kwargs.pop(argument, None) is not None:
            log.warning("het_tf.keras.Embedding %r: %s is ignored: %s", name or dim, argument, reason)
    for argument, remedy in _REFUSED.items():
        value = kwargs.pop(argument, None)
        if value is not None and value is not False:
            given = {"table": name or "NAME", "count": "len(rows)", "l2": "...", "max_value": "..."}
            if argument.startswith("embeddings"):
                kind = keras.regularizers if argument.endswith("regularizer") else keras.constraints
                value = kind.get(value)
                given |= {key: f"{float(one):g}" for key, one in vars(value).items() if key in given}
            raise TypeError(
                f"{argument} is {type(value).__name__}, an argument of keras.layers.Embedding; "
                f"{remedy.format(**given)}"
            )
    taken = {"dim": dim, "padding_id": padding_id, "initializer": initializer}
    masks = kwargs.pop("mask_zero", None)
    made = keras.initializers.get(kwargs.pop("embeddings_initializer", None))
    for own, argument, value in (
        ("dim", "output_dim", kwargs.pop("output_dim", None)),
        ("padding_id", "mask_zero", 0 if masks else None),
        ("initializer", "embeddings_initializer", of_keras(made) or made),
    ):
        if value is not None:
            if taken[own] is not None and taken[own] != value:
                raise TypeError(
                    f"{own} is {taken[own]!r}, but {argument} says {value!r}; give one of the two"
                )
            taken[own] = value
    return taken["dim"], taken["padding_id"], taken["initializer"]
