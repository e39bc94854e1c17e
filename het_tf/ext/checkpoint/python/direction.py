"""Whether a monitored value is better when larger or smaller.

Keras decides by the value's name or by the metric, and its versions differ: early ones take every
name without "acc" for a loss, so the best "val_auc" is the worst epoch. Here the metric decides.
"""

import re
from typing import Any

# In the names of Keras' own metrics and losses, without "_".
_UP = re.compile(
    r"accuracy|auc|precision|recall|sensitivity|specificity|true|iou|score|similarity|correlation"
)
_DOWN = re.compile(r"error|crossentropy|divergence|hinge|poisson|false|cosh")
_SIGNS = {"up": 1, "down": -1}


def sign(model: Any, monitor: str) -> int:
    """Returns 1 if the larger value of `monitor` is better, -1 if the smaller one.

    Args:
      model: A Keras model that has made a step, so that its metrics exist.
      monitor: A name of the logs, such as "val_auc".

    Raises:
      ValueError: The metric is unknown.
    """
    name = re.sub(r"^(val|progressive)_", "", monitor)
    if name == "loss" or name.endswith("_loss"):
        return -1
    found = list(_flat(getattr(model, "metrics", [])))
    # The logs have the name of the output before that of the metric, if there are several.
    same = [one for one in found if one.name == name] or [
        one for one in found if name.endswith(f"_{one.name}")
    ]
    signs = {_of_metric(one) for one in same}
    if len(signs) == 1 and 0 not in signs:
        return int(signs.pop())
    raise ValueError(
        f"monitor is {monitor!r}, and whether more or less of it is better is unknown here; give mode='max' "
        "or mode='min' (a metric of your own may set the attribute _direction to 'up' or 'down' instead)"
    )


def _flat(metrics: Any) -> Any:
    """Metrics; Keras has those of `compile` in lists."""
    for metric in metrics:
        inside = getattr(metric, "metrics", None)
        yield from _flat(inside) if inside else [metric]


def _of_metric(metric: Any) -> int:
    if getattr(metric, "_direction", None) in _SIGNS:
        return _SIGNS[metric._direction]
    function: Any = getattr(metric, "_fn", None)  # of a wrapper around a function, or a loss
    kinds = list(type(metric).__mro__ if function is None else (type(function), function))
    for kind in kinds:
        text = getattr(kind, "__name__", "").lower().replace("_", "")
        if str(getattr(kind, "__module__", "")).startswith("keras."):
            if _UP.search(text):
                return 1
            if _DOWN.search(text):
                return -1
    return 0
