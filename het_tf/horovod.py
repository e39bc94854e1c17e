"""Elastic jobs, which only Horovod has: `horovodrun -np 2 --min-np 2 --max-np 4 python train.py`.

What all several workers need is in `het_tf.workers`, under Horovod too. See docs/workers.md, "Elastic jobs".
The first use of a name imports Horovod.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from het_tf.ext.workers.python.elastic import ElasticState, run_elastic


def __getattr__(name: str) -> _Any:
    if name in __all__:
        from het_tf.ext.workers.python import elastic

        return getattr(elastic, name)
    raise AttributeError(f"module 'het_tf.horovod' has no attribute {name!r}; see het_tf.workers")


__all__ = ["ElasticState", "run_elastic"]
