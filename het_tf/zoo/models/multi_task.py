"""Models of several labels: MMoE and PLE."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from het_tf.python.checks import whole
from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.blocks import apply, check_widths, hidden_layers

keras: Any = tf.keras


@keras.utils.register_keras_serializable(package="het_tf")
class Experts(keras.layers.Layer):
    """Perceptrons of one shape in parallel: dense layers with ReLU, computed together.

    Args:
      count: Number of experts.
      units: Widths of the layers of each.
      seed: Seed of the initial weights: Glorot's, separately for each expert.
      **kwargs: As in any Keras layer.

    Call arguments:
      inputs: float `[B, d]`, the same for all experts.

    Returns:
      float `[B, count, units[-1]]`.

    Raises:
      ValueError: count or a width is below 1, or there are no units.
    """

    def __init__(self, count: int, units: Sequence[int], seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count = whole("experts", count)
        self.units = check_widths("hidden_units", units)
        if not self.units:
            raise ValueError("hidden_units is (); give experts one layer or more")
        self.seed = seed

    def build(self, input_shape: Any) -> None:
        """Makes kernels `[count, d, units]` and biases of each layer."""
        width = int(input_shape[-1])
        self.stack = []
        for number, units in enumerate(self.units):
            limit = (6.0 / (width + units)) ** 0.5
            initializer = keras.initializers.RandomUniform(-limit, limit, seed=self.seed + number)
            kernel = self.add_weight(
                name=f"kernel_{number + 1}", shape=(self.count, width, units), initializer=initializer
            )
            bias = self.add_weight(
                name=f"bias_{number + 1}", shape=(self.count, 1, units), initializer="zeros"
            )
            self.stack.append((kernel, bias))
            width = units
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        """See the class."""
        x = inputs[None]  # [1, B, d]: the product of matrices repeats it for each expert
        for kernel, bias in self.stack:
            x = tf.nn.relu(tf.matmul(x, kernel) + bias)
        return tf.transpose(x, [1, 0, 2])

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "count": self.count, "units": self.units, "seed": self.seed}


def mixture(gate: Any, x: Any, experts: Any) -> Any:
    """Returns the mean of experts `[B, E, d]` by the softmax of a gate's output `[B, E]` on `x`: `[B, d]`."""
    return tf.reduce_sum(tf.nn.softmax(gate(x))[..., None] * experts, axis=1)


class MultiTaskModel(ClickModel):
    """Base class of models with a logit for each label of the description.

    Fit them to labels float32 `[B, T]` with `keras.losses.BinaryCrossentropy(from_logits=True)`, the mean of
    the tasks' losses. `keras.metrics.AUC(multi_label=True, num_labels=T)` is the mean of their AUCs.

    Table: `NAME/deep`.

    Args:
      description: See `ClickModel`; `description.labels` are the tasks.
      *args: See `ClickModel`; `hidden_units` are the widths of an expert.
      tower_units: Widths of the hidden layers of each task's perceptron.
      **kwargs: See `ClickModel`.

    Returns:
      Logits, float32 `[B, T]`, in the order of the labels.
    """

    has_perceptron = False  # experts have them

    def __init__(
        self, description: Any, *args: Any, tower_units: Sequence[int] = (32,), **kwargs: Any
    ) -> None:
        super().__init__(description, *args, **kwargs)
        tower_units = check_widths("tower_units", tower_units)
        self._arguments |= {"tower_units": tower_units}
        self.towers = [
            [
                *hidden_layers(tower_units, self.dropout, self.seed + 20 * task, f"tower_{task + 1}"),
                keras.layers.Dense(1, name=f"logit_{task + 1}"),
            ]
            for task in range(self.tasks)
        ]

    @property
    def tasks(self) -> int:
        """The number of labels."""
        return len(self.description.labels)

    @property
    def dropout(self) -> float:
        """Share of the outputs of the towers' hidden layers to drop in training."""
        return float(self._arguments["dropout"])

    def task_inputs(self, x: Any) -> Sequence[Any]:
        """Returns the inputs of the tasks' towers, `[B, d]` each, from the rows and numbers `x`."""
        raise NotImplementedError(f"{type(self).__name__} must mix experts: define task_inputs()")

    def call(self, inputs: Mapping[str, Any], training: Any = None) -> Any:
        """See the class."""
        x = self.deep_input(self.rows(inputs)["deep"], self.numeric(inputs))
        logits = [
            apply(tower, mixed, training)
            for tower, mixed in zip(self.towers, self.task_inputs(x), strict=True)
        ]
        return tf.cast(tf.concat(logits, axis=1), tf.float32)


@keras.utils.register_keras_serializable(package="het_tf")
class MMoE(MultiTaskModel):
    """MMoE, multi-gate mixture of experts (Ma et al., KDD 2018, equations 6 to 8).

        f_k     = sum_i softmax(W_k x)_i expert_i(x)        x: rows of the fields; numeric columns
        logit_k = w_k^T MLP_k(f_k) + b_k

    All experts serve all tasks k; each task has its own gate.

    Args:
      description: See `MultiTaskModel`.
      *args: See `MultiTaskModel`.
      experts: Number of experts.
      **kwargs: See `MultiTaskModel`.

    Inputs, outputs and errors: see `MultiTaskModel` and `ClickModel`.
    """

    default_name = "mmoe"

    def __init__(self, description: Any, *args: Any, experts: int = 4, **kwargs: Any) -> None:
        super().__init__(description, *args, **kwargs)
        self.experts = Experts(experts, self._arguments["hidden_units"], self.seed + 200, name="experts")
        self._arguments |= {"experts": experts}
        self.gates = [
            keras.layers.Dense(experts, use_bias=False, name=f"gate_{task + 1}") for task in range(self.tasks)
        ]

    def task_inputs(self, x: Any) -> Sequence[Any]:
        """See `MultiTaskModel`."""
        experts = self.experts(x)
        return [mixture(gate, x, experts) for gate in self.gates]


@keras.utils.register_keras_serializable(package="het_tf")
class PLE(MultiTaskModel):
    """PLE, progressive layered extraction (Tang et al., RecSys 2020, equations 1 to 7).

        x^{l+1}_k = sum over the experts of task k and the shared ones of softmax(W^l_k x^l_k) expert(.)
        x^{l+1}_s = the same over the experts of all tasks and the shared ones, by x^l_s
        logit_k   = w_k^T MLP_k(x^L_k) + b_k

    Experts of task k see x^l_k, shared ones x^l_s; x^0 is the rows of the fields and the numeric columns for
    all. Unlike in MMoE, tasks that disturb each other have separate experts. `levels=1` gives the paper's
    CGC; the last level does not need x_s.

    Args:
      description: See `MultiTaskModel`.
      *args: See `MultiTaskModel`.
      levels: L, 1 or more.
      task_experts: Experts of each task in a level.
      shared_experts: Experts that all tasks share.
      **kwargs: See `MultiTaskModel`.

    Inputs, outputs and errors: see `MultiTaskModel` and `ClickModel`.
    """

    default_name = "ple"

    def __init__(
        self,
        description: Any,
        *args: Any,
        levels: int = 2,
        task_experts: int = 2,
        shared_experts: int = 2,
        **kwargs: Any,
    ) -> None:
        super().__init__(description, *args, **kwargs)
        whole("levels", levels)
        whole("task_experts", task_experts)
        whole("shared_experts", shared_experts)
        self._arguments |= {
            "levels": levels,
            "task_experts": task_experts,
            "shared_experts": shared_experts,
        }
        units = self._arguments["hidden_units"]
        counts = [task_experts] * self.tasks + [shared_experts]  # the shared ones come last
        self.experts, self.gates = [], []
        for level in range(levels):
            seeds = (self.seed + 200 + 100 * level + 10 * group for group in range(len(counts)))
            self.experts.append(
                [
                    Experts(count, units, seed, name=f"experts_{level + 1}_{group + 1}")
                    for group, (count, seed) in enumerate(zip(counts, seeds, strict=True))
                ]
            )
            mixed = [task_experts + shared_experts] * self.tasks
            if level + 1 < levels:
                mixed.append(sum(counts))
            self.gates.append(
                [
                    keras.layers.Dense(count, use_bias=False, name=f"gate_{level + 1}_{group + 1}")
                    for group, count in enumerate(mixed)
                ]
            )

    def task_inputs(self, x: Any) -> Sequence[Any]:
        """See `MultiTaskModel`."""
        inputs = [x] * (self.tasks + 1)
        for experts, gates in zip(self.experts, self.gates, strict=True):
            outputs = [group(x) for group, x in zip(experts, inputs, strict=True)]
            pools = [tf.concat([own, outputs[-1]], axis=1) for own in outputs[:-1]]
            pools.append(tf.concat(outputs, axis=1))
            inputs = [mixture(gate, x, pool) for gate, x, pool in zip(gates, inputs, pools, strict=False)]
        return inputs
