"""Exports and what serves them: `het_tf.export(model, path, format)`.

`Portable` and `Native` are the formats; with `Follow` a native export follows training. `check` compares the
answers of an export with the model's. See docs/serving.md.
"""

from het_tf.ext.serving.python.export.check import check
from het_tf.ext.serving.python.export.formats import Follow, Native, Portable
from het_tf.python.gone import refuse

__getattr__ = refuse(__name__)
__all__ = ["Follow", "Native", "Portable", "check"]
