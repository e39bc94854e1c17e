"""The Keras layer of many features (public as `het_tf.keras.EmbeddingCollection`)."""

import json
from collections.abc import Mapping
from typing import Any

from het_tf.python import backend, extensions
from het_tf.python import ids as ids_lib
from het_tf.python.backend import keras
from het_tf.python.layer import checks, params, source, variable
from het_tf.python.layer.backends import ops
from het_tf.python.session import scopes, settings
from het_tf.python.table import cache as cache_lib
from het_tf.python.table import dense_layers, layer_state, notes, registry
from het_tf.python.table.cache import Cache, LayerCache
from het_tf.python.table.config import FeatureConfig, TableConfig
from het_tf.python.table.features import Features
from het_tf.python.table.layer_state import Call, LayerState


@keras.utils.register_keras_serializable(package="het_tf")
class EmbeddingCollection(keras.layers.Layer):
    """All embeddings of a model, read by one op call a step: maps a dict of ids to a dict of rows.

    **Configuration.** A table has a name, a dim and an optimizer; a feature is one input that
    reads a table. Features may share a table, and so may layers of one namespace, by its name. The first
    update of a row makes it; ids are int64, and any value is legal.

        item = het_tf.TableConfig("item", dim=2, optimizer=het_tf.optimizers.RowWiseAdagrad(0.02))
        user = het_tf.TableConfig("user", dim=3)
        embed = het_tf.keras.EmbeddingCollection({
            "item": het_tf.FeatureConfig(item),
            "history": het_tf.FeatureConfig(item, combiner="mean", padding_id=-1),
            "user": het_tf.FeatureConfig(user),
        })

    **Input and output.** With i(7) for row 7 of the table "item", and u(7) for that of "user":

        feature      ids                  shape     rows                            shape
        "item"       [7, 9]               [2]       [i(7), i(9)]                    [2, 2]
        "history"    [[7, 9], [8, -1]]    [2, 2]    [(i(7) + i(9)) / 2, i(8)]       [2, 2]
        "user"       [[5], [6]]           [2, 1]    [[u(5)], [u(6)]]                [2, 1, 3]

    A feature without a combiner returns a row for each id; one with a combiner a row for each sample,
    and zeros for a sample without ids (an empty ragged row, or only padding).

    **Cache.** If tables are at a parameter server (`het_tf.init(ps=...)`), each worker caches rows
    of them. `cache` sets the memory of all caches together, and the bounds of staleness:

        cache = het_tf.Cache(bytes=1 << 30, staleness=10)
        embed = het_tf.keras.EmbeddingCollection(features, cache=cache)

    **Optimizers.** Each table has its own: how its rows move by a gradient. When they move, the optimizer
    of the model decides: its `apply` updates the tables too. The layer's weight `anchor` stands for
    them; its gradient says which gradients of rows are meant.

    **With fit.** Compile and fit the model like any other:

        rows = embed(inputs)
        x = tf.keras.layers.Concatenate()([rows["item"], rows["history"]])
        model = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(x))
        model.compile("adam", tf.keras.losses.BinaryCrossentropy(from_logits=True))
        model.fit(dataset)

    **In your own loop.** A table is a variable like any other: taking a gradient changes nothing, applying
    it updates the rows, once for all calls of the table (docs/own-loop.md).

        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(inputs, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))     # the tables are updated

    Gradients may be added, scaled, clipped by their norm, dropped; not clipped by value. Those of the
    newest 64 calls are kept, and 256 of a step. Without a Keras optimizer: `het_tf.apply`.

    Args:
      features: A dict, list or single FeatureConfig. Inputs and outputs have the same structure; a dict of
        inputs may have further keys, which are ignored.
      cache: Configures the caches of the tables and their staleness; None: `het_tf.Cache()`.
      reuse: Whether the layer should continue with rows that earlier layers of this process have trained;
        else its first training step on such rows issues a `het_tf.HetWarning`.
      name, dtype, trainable: As in any Keras layer. Tables are float32; outputs have the compute dtype.

    Call arguments:
      inputs: For each feature integers (or strings, hashed to 63 bits) of shape [B], [B, L] or of more axes,
        or a tf.RaggedTensor [B, (L)], or a tf.SparseTensor [B, L].
      weights: None, or floats of the same structure and shapes: the factor of each row. Features of a
        dict may be left out.
      mask: None, or bools of the shape of dense ids: False for padding.
      training: As in Keras.

    Returns:
      For each feature without a combiner `ids.shape + [dim]`, with a combiner `ids.shape[:-1] + [dim]`.

    Raises:
      ValueError: Float ids, unknown structure, weights of another shape, two tables of one name, ...
      ImportError: Cache(device="gpu"), but a library is not built, or built for another TensorFlow.
      RuntimeError: Cache(device="gpu"), but the machine has no GPU, or its driver is too old; a strategy of
        tf.distribute that is not supported.
      MemoryError: The cache does not fit into the GPU.
      tf.errors.FailedPreconditionError: The tables are gone (`het_tf.reset()`), or an applied gradient is not
        kept any more.
      tf.errors.InvalidArgumentError: An applied gradient is NaN or Inf, or was changed in a way that is not
        linear; no row has changed.
    """

    def __init__(self, features: Any, cache: Cache | None = None, reuse: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("autocast", False)
        super().__init__(**kwargs)
        self.supports_masking = True
        self.supports_jit = ops.JIT
        # Ids are converted here: Keras would make int32 of lists.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        if not isinstance(features, Features):
            features = Features(self._resolve(features))
        self._het_state = self._declare(features, cache_lib.of_argument(cache), reuse)
        for number, one in enumerate(self._het_state.variables):
            setattr(self, f"anchor_{number}" if number else "anchor", one)
        self.built = True

    # --- set-up -----------------------------------------------------------------------------------

    def _resolve(self, features: Any) -> Any:
        """Returns the features, once the layer has its name."""
        return features

    def _declare(self, features: Features, cache: Cache, reuse: bool) -> LayerState:
        """Makes the tables, and the arguments of the ops."""
        backend.check()
        ops.check(self.name)
        namespace = scopes.current_namespace()
        in_use = LayerCache(cache, features.tables, settings.workers().size)
        features.use([registry.table_of(namespace, table, self) for table in features.tables])
        tables = features.tables
        entries = [registry.declare(namespace, table, in_use, self, reuse) for table in tables]
        variables = variable.of_tables(self, namespace, entries, in_use.place)
        numbers = {table.name: number for number, table in enumerate(tables)}
        specs = {
            "namespace": namespace,
            "tables": [table.spec for table in tables],
            "features": [
                {
                    "table": numbers[feature.table.name],
                    "padding_id": feature.padding_id,
                    "name": feature.name,
                }
                for feature in features.flat
            ],
            "variables": [one.number for one in variables],
            "place": in_use.place,
        }
        call = Call(
            tables=tuple(feature.table.name for feature in features.flat),
            dims=tuple(feature.table.dim for feature in features.flat),
            specs=json.dumps(specs),
            place=in_use.place,
        )
        unique = {one.number: one for one in variables}
        return LayerState(
            features, in_use, namespace, call, self._file_keys(tables), entries, list(unique.values())
        )

    def _file_keys(self, tables: list[TableConfig]) -> dict[str, str]:
        """Names of the tables in files -> their names. The user has named the tables of a collection."""
        return {f"table-{table.base}": table.name for table in tables}

    @property
    def tables(self) -> list[TableConfig]:
        """The tables of this layer, each once."""
        return list(self._het_state.features.tables)

    @property
    def namespace(self) -> str:
        """The namespace of the tables."""
        return self._het_state.namespace

    @property
    def _is_bulk_synchronous(self) -> bool:
        """Whether every read sees every write of the previous step (staleness 0)."""
        return not self._het_state.cache.given._may_be_stale

    def __getattr__(self, name: str) -> Any:
        """Says what stands for the attributes of `keras.layers.Embedding`."""
        text = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in ("embeddings", "input_dim") and layer_state.ATTRIBUTE in self.__dict__:
            table = f"het_tf.Table({self.tables[0].name!r})"
            text += (
                f": its rows are in a table without a size; {table}.to_numpy() returns ids and rows, "
                f"{table}.lookup(ids) rows, {table}.assign(ids, rows) sets them"
            )
            raise AttributeError(text)
        get: Any = getattr(super(), "__getattr__", None)  # of torch.nn.Module
        if get is not None:
            return get(name)
        raise AttributeError(text)

    def set_weights(self, weights: Any) -> None:
        """Raises RuntimeError: `het_tf.Table(name).assign(ids, rows)` sets rows."""
        del weights
        self.anchor.numpy()

    # --- calling ----------------------------------------------------------------------------------

    @ops.not_converted
    def call(self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None) -> Any:
        """See the class."""
        backend.check()
        features = self._het_state.features
        given = features.flatten(inputs, "inputs")
        weights = features.flatten(weights, "weights", optional=True)
        masks = features.flatten(mask, "mask", optional=True)
        prepared = [ops.prepare(*each) for each in zip(features.flat, given, weights, masks, strict=True)]
        ids = [flat for flat, _ in prepared]
        instead = source.replacement()
        if instead is None:
            rows = self._lookup(ids, training)
        else:
            rows = instead(source.Read(self, ids, given, masks))
        outputs = [finish(of_feature) for (_, finish), of_feature in zip(prepared, rows, strict=True)]
        if (dtype := self.compute_dtype) != "float32":
            outputs = [ops.cast(output, dtype) for output in outputs]
        return features.pack(outputs)

    def _lookup(self, ids: list[Any], training: Any) -> list[Any]:
        """Reads the rows of all features from the live tables. If the call trains, gradients update them."""
        learns = self.trainable and training is not False
        anchor: Any = 0.0
        if learns:
            ops.check(self.name)
            for entry in self._het_state.entries:
                if entry.old_rows:
                    registry.warn_of_old_rows(entry, self)
            anchor = ops.anchor(self._het_state.variables)
        return list(ops.lookup(self._het_state.call, ids, anchor, learns))

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Masks, True for ids, of features without a combiner that have a padding_id or a given mask."""
        ids = self._het_state.features.flatten(inputs, "inputs")
        given = self._het_state.features.flatten(previous_mask, "mask", optional=True)
        masks = [self._mask(*each) for each in zip(self._het_state.features.flat, ids, given, strict=True)]
        return None if all(mask is None for mask in masks) else self._het_state.features.pack(masks)

    def _mask(self, feature: FeatureConfig, ids: Any, given: Any) -> Any:
        length = feature.max_sequence_length
        if feature.combiner is not None:
            return None
        if ids_lib.is_ragged(ids):
            return None if length is None else ops.mask_of_ragged(ids, length)
        if ids_lib.is_sparse(ids) or length is not None:
            return None
        if feature.padding_id is None:
            return given
        present = self._not_equal(ids, feature.padding_id)
        if given is None or present is None:
            return present
        return keras.ops.logical_and(present, given)

    @staticmethod
    def _not_equal(ids: Any, padding_id: int) -> Any:
        """Compares ids, symbolic ones too; None for strings, whose numbers exist only at run time."""
        if not keras.backend.is_keras_tensor(ids):
            ids = ids_lib.as_int64(ids_lib.tensor_of(ids, "ids"))
        elif keras.backend.standardize_dtype(ids.dtype) == "string":
            return None
        return keras.ops.not_equal(ids, padding_id)

    def compute_output_spec(
        self, inputs: Any, weights: Any = None, mask: Any = None, training: Any = None
    ) -> Any:
        """Keras' symbolic call: only shapes and types, equal for dense, ragged and sparse inputs."""
        del mask, training
        ids = self._het_state.features.flatten(inputs, "inputs")
        of_weights = self._het_state.features.flatten(weights, "weights", optional=True)
        outputs = []
        for feature, x, w in zip(self._het_state.features.flat, ids, of_weights, strict=True):
            checks.check_declared(feature, x.dtype, len(x.shape))
            if w is not None and not _compatible(w.shape, x.shape):
                raise ValueError(
                    f"{checks.named(feature)}: weights have shape {tuple(w.shape)} and ids have shape "
                    f"{tuple(x.shape)}; give one weight for each id"
                )
            shape = self._output_shape(feature, tuple(x.shape))
            outputs.append(keras.KerasTensor(shape, dtype=self.compute_dtype))
        return self._het_state.features.pack(outputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the outputs' shapes from the inputs' shapes, in the same structure."""
        shapes = self._het_state.features.flatten(input_shape, "input_shape", shapes=True)
        return self._het_state.features.pack(
            [
                self._output_shape(feature, tuple(shape))
                for feature, shape in zip(self._het_state.features.flat, shapes, strict=True)
            ]
        )

    def _output_shape(self, feature: FeatureConfig, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        if feature.combiner is not None:
            return (*(shape[:-1] if len(shape) > 1 else shape), feature.table.dim)
        if feature.max_sequence_length is not None:
            shape = (*shape[:-1], feature.max_sequence_length)
        return (*shape, feature.table.dim)

    def count_params(self) -> Any:
        """Returns the floats in the rows of its tables; `model.summary()` also shows their rows and bytes."""
        return params.of_tables(self.namespace, self.tables)

    # --- saving -----------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments. Tables are named, not contained."""
        config = super().get_config()
        config.pop("autocast", None)
        config["features"] = self._het_state.features.get_config()
        config["cache"] = self._het_state.cache.given.get_config()
        return dict(config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """The inverse of `get_config`."""
        config = dict(config)
        if isinstance(config.get("features"), Mapping) and "structure" in config["features"]:
            config["features"] = Features.from_config(config["features"])
        if isinstance(config.get("cache"), Mapping):
            config["cache"] = Cache.from_config(config["cache"])
        return cls(**config)

    def save_own_variables(self, store: Any) -> None:
        """Saves the rows of the tables (saving/h5.py)."""
        dense_layers.warn_of_keras_files()
        extensions.of("saving").h5.save(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Loads the rows of the tables (saving/h5.py)."""
        dense_layers.warn_of_keras_files()
        extensions.of("saving").h5.load(self, store)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            notes.without_rows(self, "saved", "For serving use het_tf.export")
            return children
        dense_layers.warn_of_keras_files()
        tables, saving = self._het_state.file_keys.items(), extensions.of("saving")
        return {**children, **{key: saving.bundle.state_of(self, table) for key, table in tables}}


def _compatible(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))
