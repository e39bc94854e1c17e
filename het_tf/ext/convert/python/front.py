"""The function `het_tf.convert`: checks its arguments, copies the model, fills its tables."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from het_tf.ext.convert.python import find, formulas, graph, state
from het_tf.ext.convert.python.clone import Cloner
from het_tf.ext.convert.python.find import Found
from het_tf.python import backend
from het_tf.python.backend import keras
from het_tf.python.layer import masked
from het_tf.python.layer.embedding import Embedding
from het_tf.python.layer.masked import MaskedEmbedding
from het_tf.python.session import collective, scopes, settings
from het_tf.python.table import dense_optimizer, initializers, optimizers, registry
from het_tf.python.table.cache import Cache
from het_tf.python.table.config import TableConfig
from het_tf.python.table.notes import HetWarning
from het_tf.python.table.table import Table, tables

_CHUNK = 1 << 24  # floats per assignment


class ConversionWarning(HetWarning):
    """A converted model predicts as before, but trains differently."""


@dataclass
class Planned:
    """A layer and its future table.

    Attributes:
      found: The layer.
      table: The table.
      slots: Its slots in the order of a row, float32 [N, ...] each; None: new slots.
      new: The layer of het_tf, once it exists.
    """

    found: Found
    table: TableConfig
    slots: formulas.Parts | None = None
    new: Any = field(default=None, repr=False)


def convert(
    model: Any,
    tables: Mapping[str, TableConfig | str] | None = None,
    *,
    layers: Sequence[str] | None = None,
    optimizer: str | optimizers.Optimizer | None = None,
    cache: Cache | None = None,
    open_vocabulary: bool = False,
    verbose: bool = True,
) -> Any:
    """Converts the `keras.layers.Embedding` of a Keras model to tables of het_tf.

        model = het_tf.convert(keras.models.load_model("clicks.keras"))
        model.fit(dataset)

    All rows of a layer go into its table, and the other weights are copied, so the new model predicts the
    same as the old one. It is compiled like the old one, with the optimizer's state: the other weights'
    state is copied, the rows' state goes into the tables' slots if the formulas are equal (SGD, momentum,
    RMSprop, Adagrad, Adam, AdamW, Ftrl). A `ConversionWarning` names all that trains differently from then
    on. The old model does not change.

    **Ids.** A row's number is its id. After a StringLookup or IntegerLookup this stays so, and tokens outside
    the vocabulary are predicted as before. With open_vocabulary the lookup is removed, and tokens are ids:
    every token has its own row, even if it appears later. The row of a lookup's single bucket then belongs to
    the token "[UNK]" (-1 for an IntegerLookup), rows of several buckets are left out, and a token outside the
    vocabulary starts with an initial row of the table.

    **Masks.** A layer with mask_zero becomes a `MaskedEmbedding` (python/layer/masked.py).

    Args:
      model: A functional or Sequential model, built; nested models are converted, too. Inputs of floats that
        are read as ids become int64.
      tables: The table, or its name, by the layer's name ("item"; "towers/item" in a model "towers").
        Default: a table of the layer's name ("towers_item" if another layer has that name), with `optimizer`,
        and with the layer's initializer if het_tf has it.
      layers: Names of the layers to convert; None: all.
      optimizer: Optimizer of tables that are not given. None: the compiled model's, with its learning rate,
        if het_tf has the formula, else the default of tables. A ConversionWarning says so if the rate is
        too small for tables, as Adam's 0.001 is, and gives the optimizer to write here.
      cache: Cache of the layers, see `het_tf.Cache`.
      open_vocabulary: Whether tokens become ids.
      verbose: Whether to print a summary of the converted layers.

    Returns:
      The new model, of the class of the old one if Keras can make it.

    Raises:
      TypeError: model is not a Keras model.
      ValueError: A layer cannot be converted, a model is subclassed, or a table of the name has rows: the
        message names all layers and the remedies. No table has changed.
      ImportError: open_vocabulary on another backend than TensorFlow.
    """
    _check_model(model)
    if open_vocabulary and not backend.TENSORFLOW:  # lookup layers are ops of TensorFlow
        raise backend.needs_tensorflow("convert(open_vocabulary=True)")
    declared = _declared(tables)
    search = find.search(model, layers, declared, open_vocabulary)
    _refuse(model, search)
    compiled = _formula(model)
    plan = [_plan(one, declared.get(one.path), optimizer, compiled, model) for one in search.found.values()]
    _check_tables(plan)
    made, notes = _make(model, plan, cache, open_vocabulary)
    for note in notes + _differences(compiled, plan):
        warnings.warn(f"model {model.name!r}: {note}", ConversionWarning, stacklevel=2)
    if verbose and settings.is_first_worker():
        print(_summary(model, plan))
    return made


# --- checks -------------------------------------------------------------------------------------------------


def _check_model(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise TypeError(f"model is {type(model).__name__}; give a Keras model")
    if not graph.is_graph(model):
        raise ValueError(
            f"model {model.name!r} is a subclass of keras.Model ({type(model).__name__}), whose calls Keras "
            "does not record. In its code put het_tf.keras.Embedding(dim, name=...) in place of "
            "keras.layers.Embedding(n, dim), and give the table the rows: "
            "het_tf.Table(name).assign(range(n), old_layer.get_weights()[0])"
        )
    if not model.built or not model.inputs:
        raise ValueError(
            f"model {model.name!r} has no weights yet; call it, or give it an Input, before convert"
        )


def _declared(given: Any) -> dict[str, TableConfig | str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"tables is {given!r}; give a dict from names of layers to het_tf.TableConfig or names"
        )
    for name, table in given.items():
        if not isinstance(table, (TableConfig, str)):
            raise ValueError(
                f"tables[{name!r}] is {table!r}; give a het_tf.TableConfig, or the name of a table"
            )
    return dict(given)


def _refuse(model: Any, search: find.Search) -> None:
    if search.faults:
        lines = "\n  ".join(search.faults)
        raise ValueError(
            f"model {model.name!r} cannot be converted:\n  {lines}\nlayers=[...] names the layers to "
            "convert, if others should stay"
        )
    if not search.found:
        raise ValueError(f"model {model.name!r} has no layer keras.layers.Embedding to convert")


def _check_tables(plan: list[Planned]) -> None:
    names: dict[str, str] = {}
    for each in plan:
        if (other := names.setdefault(each.table.name, each.found.path)) != each.found.path:
            raise ValueError(
                f"{other!r} and {each.found.path!r} both become the table {each.table.name!r}; give them "
                "tables of different names by tables={...}"
            )
        _refuse_rows(each.table.name, in_use=True)


def _refuse_rows(name: str, in_use: bool = False) -> None:
    """Raises ValueError if the table exists and has rows, or layers that read it."""
    namespace = scopes.current_namespace()
    if name not in tables():
        return
    rows = Table(name).size
    entry = registry.find(namespace, name)
    if rows or (in_use and entry is not None and entry.layers()):
        has = f"{rows} rows" if rows else "a layer that reads it"
        raise ValueError(
            f"table {name!r} exists already, with {has}; give another name by tables={{layer: name}}, or "
            f"remove it before: het_tf.Table({name!r}).drop()"
        )


# --- plans --------------------------------------------------------------------------------------------------


def _formula(model: Any) -> formulas.Formula | None:
    compiled = getattr(model, "optimizer", None)
    return None if compiled is None else formulas.formula_of(dense_optimizer.inner(compiled))


def _plan(
    one: Found,
    declared: TableConfig | str | None,
    optimizer: Any,
    compiled: formulas.Formula | None,
    model: Any,
) -> Planned:
    layer = one.layer
    if isinstance(declared, TableConfig):
        table = declared
        if table.dim != layer.output_dim:
            raise ValueError(
                f"tables[{one.path!r}] has dim {table.dim}, but the rows of the layer have "
                f"{layer.output_dim} floats; give dim={layer.output_dim}"
            )
    else:
        like = None if compiled is None else compiled.optimizer
        chosen = optimizers.get(optimizer or like)
        initializer = initializers.of_keras(layer.embeddings_initializer)
        table = TableConfig(declared or one.name, layer.output_dim, chosen, initializer)
    slots = None
    if compiled is not None and compiled.slots is not None and compiled.optimizer is not None:
        known = state.knows(dense_optimizer.inner(model.optimizer), layer.embeddings)
        if known and formulas.same_slots(table.optimizer, compiled.optimizer):
            slots = compiled.slots(layer.embeddings)
    return Planned(one, table, slots)


def _differences(compiled: formulas.Formula | None, plan: list[Planned]) -> list[str]:
    """Notes on all that trains differently than with the compiled optimizer."""
    if compiled is None:
        return []
    trained = [each for each in plan if each.found.layer.trainable]
    like = compiled.optimizer
    follow = [
        each for each in trained if like is not None and formulas.same_slots(each.table.optimizer, like)
    ]
    others = [each.found.path for each in trained if each not in follow]
    notes = list(compiled.notes) if follow or like is None else []
    if compiled.too_slow and any(isinstance(each.table.optimizer.learning_rate, str) for each in follow):
        notes.append(compiled.too_slow)
    if others and like is not None:
        notes.append(f"slots of {', '.join(others)} start anew: their tables have another optimizer")
    return notes


# --- the new model ------------------------------------------------------------------------------------------


def _make(model: Any, plan: list[Planned], cache: Any, open_vocabulary: bool) -> tuple[Any, list[str]]:
    """Makes the new model with its rows, and notes on it."""
    instead = {id(each.found.layer): each for each in plan}
    gone: set[int] = set()
    masks: dict[int, int] = {}
    for each in plan:
        if vocabulary := each.found.vocabulary:
            gone |= {id(call.sources[0]) for call in each.found.calls}
            if vocabulary.mask_token is not None:
                masks |= {id(one): vocabulary.mask_id() for one in each.found.masks}
    before = set(tables())

    def replace(layer: Any) -> Any:
        if id(layer) in gone:
            return keras.layers.Identity(name=layer.name, dtype="string" if _reads_text(layer) else "int64")
        if id(layer) in masks:
            return masked.IsNotMasked(masks[id(layer)])
        if id(layer) in instead:
            each = instead[id(layer)]
            each.new = _layer(each, cache)
            return each.new
        return None

    cloner, filled = Cloner(replace), set[str]()
    try:
        made = cloner.model(model)
        cloner.copy_weights()
        with collective.together("convert", "convert the model"):
            if not settings.parameter_server() or settings.is_first_worker():
                for each in plan:
                    _refuse_rows(each.table.name)
                for each in plan:
                    filled.add(each.table.name)
                    _fill(each)
    except BaseException:
        for name in (each.table.name for each in plan if each.new is not None):
            with contextlib.suppress(Exception):  # report the first error
                if name not in before and (name in filled or not Table(name).size):  # rows of a server stay
                    Table(name).drop()
        raise
    notes = []
    if state.compile_like(made, model):
        state.carry(made, model, cloner.variables())
        if getattr(model, "jit_compile", None) is True and not made.jit_compile:
            notes.append("jit_compile is False now: lookups of tables are not compiled")
    elif getattr(model, "optimizer", None) is not None:
        notes.append(f"{type(model).__name__} overrides compile(): compile the new model yourself")
    return made, notes


def _reads_text(lookup: Any) -> bool:
    return type(lookup) is keras.layers.StringLookup


def _layer(each: Planned, cache: Any) -> Any:
    layer, vocabulary = each.found.layer, each.found.vocabulary
    options: dict[str, Any] = {
        "name": layer.name,
        "cache": cache,
        "trainable": layer.trainable,
        "dtype": layer.get_config()["dtype"],
    }
    if not layer.mask_zero:
        return Embedding(each.table, **options)
    return MaskedEmbedding(each.table, mask_id=vocabulary.mask_id() if vocabulary else 0, **options)


def _fill(each: Planned) -> None:
    """Puts the rows of a layer into its table."""
    rows, vocabulary = np.asarray(each.found.layer.embeddings), each.found.vocabulary
    numbers: Any
    if vocabulary is None:
        ids = numbers = np.arange(len(rows), dtype=np.int64)
    else:
        ids, numbers = vocabulary.ids(len(rows))
    table = Table(each.table.name)
    parts = [rows, *(each.slots or [])]
    step = max(1, _CHUNK // sum(part.shape[1] for part in parts))
    for begin in range(0, len(ids), step):
        some = numbers[begin : begin + step]
        values = np.concatenate([part[some] for part in parts], 1, dtype=np.float32, casting="unsafe")
        table.assign(ids[begin : begin + step], values, with_slots=each.slots is not None)


def _summary(model: Any, plan: list[Planned]) -> str:
    lines = [
        f"{model.name}: {len(plan)} keras.layers.Embedding {'is a table' if len(plan) == 1 else 'are tables'}"
    ]
    for each in plan:
        vocabulary = each.found.vocabulary
        ids = f"0 to {each.found.layer.input_dim - 1}"
        if vocabulary is not None:
            ids = f"the tokens of {vocabulary.lookup.name!r}"
        slots = "" if each.slots is None else ", slots carried over"
        lines.append(
            f"  {each.found.path}: table {each.table.name!r}, {Table(each.table.name).size:,} rows of "
            f"{each.table.dim}, ids {ids}; {each.table.optimizer!r}{slots}"
        )
    return "\n".join(lines)
