"""The Keras layers (public as `het_tf.keras.Embedding` and `het_tf.keras.EmbeddingCollection`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from het_tf.python.checkpoint import keras as saving
from het_tf.python.export import redirect
from het_tf.python.layer import cache as cache_lib
from het_tf.python.layer import inputs as inputs_lib
from het_tf.python.layer import ops, owner, registry
from het_tf.python.layer.cache import Cache, LayerCache
from het_tf.python.layer.config import FeatureConfig, TableConfig
from het_tf.python.layer.features import Features
from het_tf.python.layer.initializers import Initializer
from het_tf.python.layer.optimizers import Optimizer
from het_tf.python.session import runtime
from het_tf.python.session.native import tf

keras = tf.keras
KERAS_3 = owner.KERAS_3


@keras.utils.register_keras_serializable(package="het_tf")
class EmbeddingCollection(keras.layers.Layer):  # type: ignore[name-defined]
    """All embeddings of a model, read by one op call a step: dict in, dict out.

        item = het_tf.TableConfig("item", dim=16, optimizer=het_tf.optimizers.RowWiseAdagrad(0.05))
        embed = het_tf.keras.EmbeddingCollection({
            "item": het_tf.FeatureConfig(item),
            "history": het_tf.FeatureConfig(item, combiner="mean", padding_id=-1),
        })
        rows = embed({"item": ids, "history": ids_of_the_past})     # {"item": [B, 16], "history": [B, 16]}

    Rows are made at their first update; ids are int64 and any value is legal. Gradients update the tables
    while they are computed, with each table's own optimizer: the layer's only weight is an anchor, a scalar
    that stays 0 and carries the gradient tape through the lookup. Calling the layer inside of a tape and
    taking a gradient, of whatever variables, is therefore a training step of the tables, unless the layer is
    not trainable, `training=False`, or the call is inside of `het_tf.no_update()`. Each call's gradient can
    be taken once.

    Custom loops with a loss scale (mixed_float16) add `tf.add_n(model.losses)` to the loss before scaling it:
    that is how the layer learns the scale.

    Args:
      features: A dict, list or single FeatureConfig. Inputs and outputs have the same structure; a dict of
        inputs may have further keys, which are ignored.
      cache: How the tables are cached and how stale their rows may be; None: `het_tf.Cache()`.
      name, dtype, trainable: As of any Keras layer. Tables are float32; outputs have the compute dtype.

    Call arguments:
      inputs: For each feature integers (or strings, hashed to 64 bits) of shape [B], [B, F], [B, L], or a
        tf.RaggedTensor [B, (L)], or a tf.SparseTensor [B, L].
      weights: None, or floats of the same structure and shapes: what each row is multiplied by. Features of a
        dict may be left out.
      mask: None, or bools of the shape of dense ids: where False there is no id.
      training: As in Keras.

    Returns:
      For each feature without a combiner `ids.shape + [dim]`, with one `ids.shape[:-1] + [dim]`; a sample
      without ids (an empty ragged row, padding alone) gives zeros.

    Raises:
      ValueError: Float ids, unknown structure, weights of another shape, two tables of one name, ...
      ImportError: Cache(device="gpu"), and a library that it takes is not built, or for another TensorFlow.
      RuntimeError: Cache(device="gpu"), and there is no GPU, or its driver is too old.
      MemoryError: The cache does not fit into the GPU.
      tf.errors.FailedPreconditionError: The tables are gone (`het_tf.reset()`), a gradient was taken twice.
      tf.errors.InvalidArgumentError: A gradient is NaN or Inf; no row has changed.
    """

    def __init__(
        self,
        features: Any,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("autocast", False)
        super().__init__(**kwargs)
        self.supports_masking = True
        if KERAS_3:
            # XLA has no kernel of the lookup, and with any device but a CPU Keras would compile by itself.
            self.supports_jit = False
            # Ids are converted here: Keras would make int32 of lists.
            self._convert_input_args = False
            self._allow_non_tensor_positional_args = True
        self._het_features = features if isinstance(features, Features) else Features(self._resolve(features))
        self._het_cache = LayerCache(cache_lib.of_argument(cache), runtime.workers())
        self._het_namespace = runtime.current_namespace()
        self._het_number = registry.register_layer(self)
        self._het_owner = None
        self._het_copy = False
        self._het_call = self._declare()
        self._het_anchor = self._make_anchor()
        self.built = True

    # --- set-up -----------------------------------------------------------------------------------

    def _resolve(self, features: Any) -> Any:
        """The features, once the layer has its name."""
        return features

    def _declare(self) -> ops.Call:
        """Makes the tables, and the attributes of the ops."""
        tables: dict[str, TableConfig] = {}
        for feature in self._het_features.flat:
            table = tables.setdefault(feature.table.name, feature.table)
            if table.get_config() != feature.table.get_config():
                raise ValueError(
                    f"two tables have the name {table.name!r} and different specs: {table!r} and "
                    f"{feature.table!r}; give them different names, or use one TableConfig for both"
                )
        for table in tables.values():
            registry.declare(self._het_namespace, table, self._het_cache, self)
        numbers = {name: number for number, name in enumerate(tables)}
        specs = {
            "namespace": self._het_namespace,
            "tables": [table.spec for table in tables.values()],
            "features": [
                {"table": numbers[feature.table.name], "padding_id": feature.padding_id}
                for feature in self._het_features.flat
            ],
            "needs_loss_scale": self.compute_dtype == "float16",
            "layer": self._het_number,
            "place": self._het_cache.place,
        }
        flat = self._het_features.flat
        return ops.Call(
            tables=tuple(feature.table.name for feature in flat),
            dims=tuple(feature.table.dim for feature in flat),
            specs=json.dumps(specs),
            place=self._het_cache.place,
        )

    def _make_anchor(self) -> Any:
        options: dict[str, Any] = {"name": "anchor", "shape": (), "dtype": "float32", "initializer": "zeros"}
        if KERAS_3:
            # Overwritten with its gradient, 0: no optimizer slots, no part in clipping by global norm.
            anchor = self.add_weight(**options, autocast=False, overwrite_with_gradient=True)
        else:
            anchor = self.add_weight(**options, experimental_autocast=False)
        saving.arrays.watch(anchor, self)
        return anchor

    @property
    def tables(self) -> list[TableConfig]:
        """The tables of this layer, each once."""
        return list({feature.table.name: feature.table for feature in self._het_features.flat}.values())

    @property
    def namespace(self) -> str:
        """The namespace of the tables."""
        return self._het_namespace

    @property
    def is_bulk_synchronous(self) -> bool:
        """Whether every read sees every write of the step before (staleness 0)."""
        return self._het_cache.pull_bound == 0 and self._het_cache.push_bound == 0

    # --- calling ----------------------------------------------------------------------------------

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None) -> Any:
        """See the class."""
        ids = self._het_features.flatten(inputs, "inputs")
        weights = self._het_features.flatten(weights, "weights", optional=True)
        masks = self._het_features.flatten(mask, "mask", optional=True)
        prepared = [
            inputs_lib.prepare(*each)
            for each in zip(self._het_features.flat, ids, weights, masks, strict=True)
        ]
        backend = redirect.active()
        if backend is not None:
            flat = [flat for flat, _ in prepared]
            rows = redirect.lookup(backend, self._het_features.flat, self._het_namespace, flat)
        else:
            rows = self._lookup([flat for flat, _ in prepared], training)
        outputs = [
            self._cast_output(finish(of_feature))
            for (_, finish), of_feature in zip(prepared, rows, strict=True)
        ]
        return self._het_features.pack(outputs)

    def _lookup(self, ids: list[Any], training: Any) -> list[Any]:
        """The rows of all features from the live tables. Where the call trains, gradients update them."""
        learns = (
            self.trainable
            and training is not False
            and runtime.updates_enabled()
            and not owner.infers_shapes()
        )
        if learns:
            owner.note(self)
            anchor = tf.convert_to_tensor(self._het_anchor)
        else:
            anchor = tf.constant(0.0)
        rows, probe = ops.lookup(self._het_call, ids, anchor, learns)
        if learns:
            self.add_loss(probe)
        return rows

    def _cast_output(self, output: Any) -> Any:
        return output if output.dtype == self.compute_dtype else tf.cast(output, self.compute_dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """True where there is an id: of features without a combiner, with a padding_id or a given mask."""
        ids = self._het_features.flatten(inputs, "inputs")
        given = self._het_features.flatten(previous_mask, "mask", optional=True)
        masks = [self._mask(*each) for each in zip(self._het_features.flat, ids, given, strict=True)]
        return None if all(mask is None for mask in masks) else self._het_features.pack(masks)

    def _mask(self, feature: FeatureConfig, ids: Any, given: Any) -> Any:
        length = feature.max_sequence_length
        if feature.combiner is not None:
            return None
        if inputs_lib.is_ragged(ids):
            return None if length is None else tf.sequence_mask(tf.minimum(ids.row_lengths(), length), length)
        if inputs_lib.is_sparse(ids) or length is not None:
            return None
        if feature.padding_id is None:
            return given
        present = self._not_equal(ids, feature.padding_id)
        if given is None or present is None:
            return present
        return (keras.ops if KERAS_3 else tf).logical_and(present, given)

    @staticmethod
    def _not_equal(ids: Any, padding_id: int) -> Any:
        """Also of symbolic ids; None for strings, which are numbers only when there are some."""
        if not KERAS_3:
            return tf.not_equal(inputs_lib.as_int64(ids), padding_id)
        if not keras.backend.is_keras_tensor(ids):
            ids = inputs_lib.as_int64(inputs_lib.to_tensor(ids))
        elif keras.backend.standardize_dtype(ids.dtype) == "string":
            return None
        return keras.ops.not_equal(ids, padding_id)

    def compute_output_spec(
        self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None
    ) -> Any:
        """Keras 3's symbolic call: shapes and types alone, the same for dense, ragged and sparse inputs."""
        del mask, training
        ids = self._het_features.flatten(inputs, "inputs")
        of_weights = self._het_features.flatten(weights, "weights", optional=True)
        outputs = []
        for feature, x, w in zip(self._het_features.flat, ids, of_weights, strict=True):
            sparse = bool(getattr(x, "sparse", False))
            inputs_lib.check_ids(feature, x.dtype, len(x.shape), sparse)
            if w is not None and not _compatible(w.shape, x.shape):
                raise ValueError(
                    f"feature {feature.name!r}: weights have shape {tuple(w.shape)} and ids have shape "
                    f"{tuple(x.shape)}; give one weight for each id"
                )
            shape = self._output_shape(feature, tuple(x.shape))
            outputs.append(keras.KerasTensor(shape, dtype=self.compute_dtype))
        return self._het_features.pack(outputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Shapes of the outputs from those of the inputs, in the same structure."""
        shapes = self._het_features.flatten(input_shape, "input_shape", shapes=True)
        return self._het_features.pack(
            [
                self._output_shape(feature, tuple(shape))
                for feature, shape in zip(self._het_features.flat, shapes, strict=True)
            ]
        )

    def _output_shape(self, feature: FeatureConfig, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        if feature.combiner is not None:
            return (*(shape[:-1] if len(shape) > 1 else shape), feature.table.dim)
        if feature.max_sequence_length is not None:
            shape = (*shape[:-1], feature.max_sequence_length)
        return (*shape, feature.table.dim)

    def share_tables(self) -> None:
        """Allows a copy (clone_model, from_config) to train the tables that it shares with the original."""
        self._het_copy = False

    # --- saving -----------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments. Tables are named, not contained: a copy reads the same ones."""
        config = super().get_config()
        config.pop("autocast", None)
        config["features"] = self._het_features.get_config()
        config["cache"] = self._het_cache.given.get_config()
        return dict(config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The inverse of `get_config`."""
        config = dict(config)
        if isinstance(config.get("features"), Mapping) and "structure" in config["features"]:
            config["features"] = Features.from_config(config["features"])
        if isinstance(config.get("cache"), Mapping):
            config["cache"] = Cache.from_config(config["cache"])
        layer = cls(**config)
        layer._het_copy = True
        return layer

    def _het_table_keys(self) -> dict[str, str]:
        """What the tables are called in files -> their names. Those of a collection were named by someone."""
        return {f"table-{table.name}": table.name for table in self.tables}

    def save_own_variables(self, store: Any) -> None:
        """Saves the rows of the tables (saving/h5.py)."""
        saving.h5.save(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Loads the rows of the tables (saving/h5.py)."""
        saving.h5.load(self, store)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            saving.notes.without_rows(self, "saved", "For serving use het_tf.export")
            return children
        tables = self._het_table_keys().items()
        return {**children, **{key: saving.bundle.state_of(self, table) for key, table in tables}}


def _compatible(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))


@keras.utils.register_keras_serializable(package="het_tf")
class Embedding(EmbeddingCollection):
    """One feature and its table: what `keras.layers.Embedding` is, without a size.

        embed = het_tf.keras.Embedding(16, name="item", optimizer=het_tf.optimizers.Adam(1e-3))
        rows = embed(ids)                                   # [B] -> [B, 16], [B, L] -> [B, L, 16]

    Args:
      dim: Floats of a row. Or a TableConfig; then the arguments of the table are not given here.
      combiner: None, "sum", "mean" or "sqrtn" over the last axis of the ids.
      padding_id: This id reads zeros, learns nothing and is masked (`mask_zero=True` of Keras is
        `padding_id=0`).
      table: Name of the table; default: the name of the layer. Layers with one table name share the table.
      optimizer, initializer, seed, l2, max_norm: Of the table, see `het_tf.TableConfig`.
      max_sequence_length: See `het_tf.FeatureConfig`.
      **kwargs: Those of EmbeddingCollection: cache, name, dtype, trainable.

    Call arguments, returns and errors: as of EmbeddingCollection, with a tensor in place of the dict.
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
        if dim is None and "features" not in kwargs:
            raise ValueError("dim is None; give the number of floats of a row, or a het_tf.TableConfig")

        def feature(name: str) -> FeatureConfig:
            if isinstance(dim, TableConfig):
                config = dim
            else:
                config = TableConfig(table or name, dim or 0, optimizer, initializer, seed, l2, max_norm)
            return FeatureConfig(config, combiner, padding_id, max_sequence_length, name=name)

        super().__init__(kwargs.pop("features", feature), **kwargs)

    def _resolve(self, features: Any) -> Any:
        return features(self.name)

    def _het_table_keys(self) -> dict[str, str]:
        """One table has no need of a name, which Keras may have counted up for this layer."""
        return {"table": self.table_config.name}

    @property
    def table_config(self) -> TableConfig:
        """The table of this layer."""
        return self.tables[0]
