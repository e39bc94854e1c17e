"""Exports and what serves them: `het_tf.export(model, path, ...)`.

`check` compares the answers of an export with the model's, `stats` has what the loaded SavedModels of this
process count. `Follow` lets a served model follow published versions. See docs/serving.md.
"""

from het_tf.ext.serving.python.export.check import check
from het_tf.ext.serving.python.export.follow import Follow
from het_tf.ext.serving.python.export.stats import stats

__all__ = ["Follow", "check", "stats"]
