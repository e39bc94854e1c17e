"""The Keras layer of a single feature (public as `het_tf.keras.Embedding`)."""

from typing import Any

from het_tf.python.layer.layers import EmbeddingCollection
from het_tf.python.session.native import tf
from het_tf.python.table.config import FeatureConfig, TableConfig
from het_tf.python.table.initializers import Initializer
from het_tf.python.table.optimizers import Optimizer

keras: Any = tf.keras


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
      optimizer, initializer, seed, l2, max_norm: See `het_tf.TableConfig`.
      max_sequence_length: See `het_tf.FeatureConfig`.
      **kwargs: Arguments of EmbeddingCollection: cache, reuse, name, dtype, trainable.

    Call arguments, returns and errors: as in EmbeddingCollection.
    """

    def __init__(
        self,
        dim: int | TableConfig | None = None,
        combiner: str | None = None,
        padding_id: int | None = None,
        table: str | None = None,
        optimizer: str | Optimizer | None = None,
        initializer: str | Initializer | None = None,
        seed: int = 0,
        l2: float = 0.0,
        max_norm: float | None = None,
        max_sequence_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        _refuse_arguments_of_keras(dim, combiner, kwargs)
        if dim is None and "features" not in kwargs:
            raise ValueError("dim is None; give the number of floats of a row, or a het_tf.TableConfig")
        unnamed = table is None and kwargs.get("name") is None

        def feature(name: str) -> FeatureConfig:
            if isinstance(dim, TableConfig):
                config = dim
            else:
                config = TableConfig(table or name, dim or 0, optimizer, initializer, seed, l2, max_norm)
                config.unnamed = unnamed
            return FeatureConfig(config, combiner, padding_id, max_sequence_length, name=name)

        super().__init__(kwargs.pop("features", feature), **kwargs)

    def _resolve(self, features: Any) -> Any:
        return features(self.name)

    def _file_keys(self, tables: list[TableConfig]) -> dict[str, str]:
        """A single table needs no name; Keras may have numbered the layer's name."""
        return {"table": tables[0].name}

    @property
    def table_config(self) -> TableConfig:
        """The table of this layer."""
        return self.tables[0]


# Arguments of keras.layers.Embedding, and their equivalents here.
_OF_KERAS = {
    "input_dim": "leave it out: a table has no size, and every id is legal",
    "output_dim": "give the number of floats of a row as dim",
    "mask_zero": "give padding_id=0 for mask_zero=True, and leave it out for False",
    "embeddings_initializer": "give initializer, one of het_tf.initializers",
    "embeddings_regularizer": "give l2",
    "embeddings_constraint": "give max_norm",
    "input_length": "leave it out: ids may have any length",
}


def _refuse_arguments_of_keras(dim: Any, combiner: Any, kwargs: dict[str, Any]) -> None:
    """Raises TypeError for arguments of Keras' own layer, which has a size."""
    if isinstance(combiner, int):
        raise TypeError(
            f"Embedding({dim!r}, {combiner!r}) has the arguments of keras.layers.Embedding, a number of ids "
            f"and a dim; a table here has no size: write Embedding({combiner!r})"
        )
    for name, remedy in _OF_KERAS.items():
        if name in kwargs:
            raise TypeError(f"{name} is {kwargs[name]!r}, an argument of keras.layers.Embedding; {remedy}")
