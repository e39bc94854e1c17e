"""Modules of plain PyTorch over the layers of Keras (public as `het_tf.torch`)."""

from collections.abc import Mapping
from typing import Any, Literal

import torch

from het_tf.python import extensions
from het_tf.python.ids import tensor_of, to_tensor
from het_tf.python.layer.backends.torch import parameters
from het_tf.python.layer.embedding import Embedding
from het_tf.python.layer.layers import EmbeddingCollection as Layer
from het_tf.python.table import layer_state
from het_tf.python.table.config import TableConfig


class _Anchors(torch.nn.ParameterList):
    """The parameters that stand for tables: those of the layer, whatever happens to the module.

    They are zeros, so no state has them. As float32 in this process's memory a gradient keeps its numbers.
    """

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Of `to`, `half`, `to_empty` and the like: does nothing."""
        return self

    def _save_to_state_dict(self, *arguments: Any) -> None:
        pass

    _load_from_state_dict = _save_to_state_dict


class Tables(torch.nn.Module):
    """A module whose tables are those of a layer; `state_dict` carries their rows.

    Attributes:
      anchors: The parameters that stand for the tables, each [64, 2] of zeros.
      layer: The layer.
    """

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        # Its own parameters have names of Keras. Modules use `call`: Keras' __call__ walks through all
        # inputs, for a sixth of a small step.
        self.__dict__["layer"] = layer
        self.anchors = _Anchors(parameters(layer_state.of(layer).variables))

    @property
    def tables(self) -> list[TableConfig]:
        """The tables of this module, each once."""
        return list(self.layer.tables)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raises TypeError: the copy's rows would be this module's, or none."""
        names = ", ".join(repr(table.name) for table in self.tables)
        raise TypeError(
            f"a module with tables ({names}) is neither copied nor pickled: rows are in the store. Keep "
            "module.state_dict(), which has them, and load it into a module that is made as this one was; "
            "copy or average the modules behind it"
        )

    def get_extra_state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Returns the rows of the tables, with slots and clocks, by the names of the tables in files."""
        state, pack = {}, extensions.of("saving").pack
        for key, table in layer_state.of(self.layer).file_keys.items():
            with pack.taken(self.layer.namespace, table) as arrays:
                state[key] = {name: torch.from_numpy(one.copy()) for name, one in arrays}
        return state

    def set_extra_state(self, state: dict[str, dict[str, torch.Tensor]]) -> None:
        """Restores what `get_extra_state` returned.

        Raises:
          ValueError: It lacks a table, or has one of another spec.
        """
        tables = layer_state.of(self.layer).file_keys
        if state.keys() != tables.keys():
            raise ValueError(
                f"the state has the tables {sorted(state)}, and the module {sorted(tables)}; load the "
                "state of a module with the same features"
            )
        for key, table in tables.items():

            def get(name: str, dtype: Any, arrays: dict[str, torch.Tensor] = state[key]) -> Any:
                del dtype
                return arrays[name].numpy()

            extensions.of("saving").pack.put_back(get, self.layer.namespace, table)


class EmbeddingBag(Tables):
    """`torch.nn.EmbeddingBag` without a number of rows: sums or means of the rows of bags of ids.

        bag = het_tf.torch.EmbeddingBag(16, name="item")
        bag(torch.tensor([[1, 2], [7, 7]]))                              # float32 [2, 16]
        bag(torch.tensor([1, 2, 7]), offsets=torch.tensor([0, 2]))       # two bags: [1, 2] and [7]

    Args:
      dim: Floats of a row, 1 to 65536.
      mode: "mean" (default) or "sum"; zeros for an empty bag.
      padding_id: This id is no part of a bag, and is not trained.
      **arguments: Of `het_tf.keras.Embedding`: name, table, optimizer, initializer, seed, l2, max_norm,
        stored, cache.

    Call arguments:
      input: Integers [B, L], or [N] with offsets.
      offsets: None, or int64 [B]: where each bag begins in `input`; the first is 0.
      per_sample_weights: None, or float32 of the shape of input: the factor of each row; only with "sum".

    Raises:
      ValueError: An argument is out of range, or shapes do not fit.
      TypeError: An argument is of torch.nn.EmbeddingBag; the message says what to write.
    """

    def __init__(
        self,
        dim: int,
        mode: Literal["mean", "sum"] = "mean",
        padding_id: int | None = None,
        **arguments: Any,
    ) -> None:
        for name in arguments.keys() & _OF_TORCH:
            raise TypeError(f"{name} is an argument of torch.nn.EmbeddingBag; {_OF_TORCH[name]}")
        if isinstance(mode, int):
            raise TypeError(
                f"EmbeddingBag({dim!r}, {mode!r}) has a number of ids and a dim, as torch.nn.EmbeddingBag; a "
                f"table has no size: write EmbeddingBag({mode!r})"
            )
        if mode not in ("mean", "sum"):
            raise ValueError(f"mode is {mode!r}; give 'mean' or 'sum'")
        super().__init__(Embedding(dim, None, padding_id, **arguments))
        self.mode, self.padding_id = mode, padding_id

    def forward(
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See the class."""
        input = tensor_of(input, "input")
        if (input.dim(), offsets is None) not in ((1, False), (2, True)):
            raise ValueError(
                f"input has shape {list(input.shape)}, offsets are {'not ' if offsets is None else ''}given; "
                "give [B, L] without offsets, or [N] with offsets [B]"
            )
        if per_sample_weights is not None and self.mode != "sum":
            raise ValueError("per_sample_weights go with mode='sum'")
        rows = self.layer.call(input, weights=per_sample_weights, training=torch.is_grad_enabled())
        present = torch.ones_like(input) if self.padding_id is None else input != self.padding_id
        if offsets is None:
            total, count = rows.sum(1), present.sum(1)
        else:
            offsets = to_tensor(offsets, "offsets")
            bags = _bags(input, offsets)
            total = rows.new_zeros(len(offsets), rows.shape[1]).index_add(0, bags, rows)
            count = torch.zeros_like(offsets).index_add(0, bags, present.to(offsets.dtype))
        return total if self.mode == "sum" else total / count.clamp(min=1)[:, None]


_OF_TORCH = {
    "num_embeddings": "leave it out: a table has no size",
    "embedding_dim": "write dim",
    "padding_idx": "write padding_id",
    "include_last_offset": "leave it out, and give offsets[:-1]",
    "sparse": "leave it out: only rows of a step are updated",
    "scale_grad_by_freq": "leave it out, and give per_sample_weights",
    "norm_type": "leave it out: max_norm is of the Euclidean norm",
    "device": "leave it out: rows are in the memory of this process, or at a server",
}


def _bags(ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Returns the number of the bag of each id, int64 [N]."""
    if offsets.dim() != 1 or offsets.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"offsets are {offsets.dtype} {list(offsets.shape)}; give int64 [B]")
    ends = torch.cat([offsets[1:], offsets.new_tensor([len(ids)] * min(1, len(offsets)))])
    first = int(offsets[0]) if len(offsets) else len(ids)
    if first != 0 or bool((ends < offsets).any()):
        raise ValueError(
            f"offsets are {offsets.tolist()} for {len(ids)} ids; they begin with 0 and do not fall, and "
            "the last is at most the number of ids"
        )
    return torch.repeat_interleave(
        torch.arange(len(offsets), device=ids.device), (ends - offsets).to(ids.device)
    )


class EmbeddingCollection(Tables):
    """All embeddings of a model: maps a dict of ids to a dict of rows, as `het_tf.keras.EmbeddingCollection`.

        item = het_tf.TableConfig("item", dim=16)
        embed = het_tf.torch.EmbeddingCollection({
            "item": het_tf.FeatureConfig(item),
            "history": het_tf.FeatureConfig(item, combiner="mean", padding_id=-1),
        })
        rows = embed({"item": ids, "history": histories})     # {"item": [B, 16], "history": [B, 16]}

    Args:
      features: A dict of `het_tf.FeatureConfig`.
      **arguments: Of `het_tf.keras.EmbeddingCollection`: cache, reuse, name.

    Call arguments:
      inputs: For each feature integers of shape [B], [B, L] or of more axes.
      weights: None, or for some features floats of the shape of ids: the factor of each row.
    """

    def __init__(self, features: Mapping[str, Any], **arguments: Any) -> None:
        super().__init__(Layer(features, **arguments))

    def forward(
        self, inputs: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """See the class."""
        rows: dict[str, torch.Tensor] = self.layer.call(
            inputs, weights=weights, training=torch.is_grad_enabled()
        )
        return rows
