"""A layer whose masked id has a row."""

from typing import Any

from het_tf.python.backend import keras
from het_tf.python.checks import whole
from het_tf.python.ids import as_int64
from het_tf.python.layer.embedding import Embedding


@keras.utils.register_keras_serializable(package="het_tf")
class MaskedEmbedding(Embedding):
    """Like `keras.layers.Embedding(mask_zero=True)`: one id is masked, but has a row like any other.

        ids            [[3, 5, 0, 0]]
        rows           [[row 3, row 5, row 0, row 0]]
        mask           [[True, True, False, False]]

    Later layers that support masks leave the masked places out; others see the row, and train it. In a
    new model prefer `Embedding(padding_id=0)`: padding reads zeros for all layers. `het_tf.convert` makes
    this layer, so that predictions do not change.

    Args:
      dim: As in `Embedding`.
      mask_id: The id to mask, an int64.
      **kwargs: Arguments of `Embedding`, without combiner and padding_id.

    Call arguments and returns: as in `Embedding`.

    Raises:
      ValueError: mask_id is not an int64, or `Embedding` refuses an argument.
    """

    def __init__(self, dim: Any = None, mask_id: int = 0, **kwargs: Any) -> None:
        self._mask_id = whole("mask_id", mask_id, -(2**63), 2**63 - 1)
        super().__init__(dim, **kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Returns False for the masked id, else True, in the shape of the ids."""
        del previous_mask  # as in Keras: the ids define the mask
        return self._not_equal(inputs, self._mask_id)

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "mask_id": self._mask_id}


@keras.utils.register_keras_serializable(package="het_tf")
class IsNotMasked(keras.Operation):
    """The mask of a `MaskedEmbedding`, in place of `keras.ops.not_equal(numbers, 0)`.

    A mask is a separate call of an operation in a functional model.

    Args:
      mask_id: The masked id.
      name: Name of the operation.
    """

    def __init__(self, mask_id: int = 0, name: str | None = None) -> None:
        super().__init__(name=name)
        self.mask_id = mask_id

    def call(self, ids: Any, zero: Any = 0) -> Any:
        """Returns bools of the shape of the ids; `zero` is the former operand of the comparison."""
        del zero
        return keras.ops.not_equal(as_int64(ids), self.mask_id)

    def compute_output_spec(self, ids: Any, zero: Any = 0) -> Any:
        """Bools of the shape of the ids."""
        del zero
        return keras.KerasTensor(ids.shape, dtype="bool")

    def get_config(self) -> dict[str, Any]:
        """The operation's arguments."""
        return {"mask_id": self.mask_id, "name": self.name}
