"""What `import het_tf` registers in Keras, so that `keras.models.load_model` finds the layers of het_tf.

A program that only loads a model uses no name of het_tf, and Keras knows only classes whose modules are
imported. So Keras' registry gets a stand-in for each class, which imports its module when Keras asks for it.
This module imports neither Keras nor TensorFlow: if Keras is not imported yet, it waits for that.
"""

import importlib
import sys
from importlib.abc import MetaPathFinder
from typing import Any

PACKAGE = "het_tf"
# Module -> the names that its classes are registered under.
NAMES = {
    "keras": "Embedding EmbeddingCollection IsNotMasked MaskedEmbedding",
    "metrics": "Calibration GAUC MeanReciprocalRank NDCG NormalizedEntropy RecallAtK",
    "models": "AutoInt CausalBlock CompressedInteraction Cross DCNv2 DIN DLRM DeepFM EmbeddingSide Experts "
    "FactorizationMachine FieldAttention GraphSAGE LinkGraphSAGE LinkLoss MMoE NodeRows NumericVectors "
    "Occurrences PLE PairwiseDots SASRec SageLayer TargetAttention Tower TwoTower WideDeep XDeepFM",
}
_KERAS = ("keras", "tf_keras")


class _StandIn:
    """A class that is not imported yet."""

    def __init__(self, objects: dict[str, Any], name: str, module: str) -> None:
        self._of = (objects, name, module)

    def __getattr__(self, attribute: str) -> Any:
        objects, name, module = self._of
        importlib.import_module(f"{PACKAGE}.{module}")  # replaces the stand-in in the registry
        if objects[name] is self:
            raise ImportError(
                "layers of het_tf are of Keras 3, and tf_keras is Keras 2; load by keras.models"
            )
        return getattr(objects[name], attribute)


def _register(keras: Any) -> None:
    objects = keras.saving.get_custom_objects()
    for module, names in NAMES.items():
        for name in names.split():
            key = f"{PACKAGE}>{name}"
            objects.setdefault(key, _StandIn(objects, key, module))


class _AfterKeras(MetaPathFinder):
    """Registers the stand-ins when the import of Keras ends."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See importlib.abc.MetaPathFinder."""
        if name not in _KERAS:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _register(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Registers the stand-ins now, or when Keras is imported."""
    for name in _KERAS:
        if hasattr(sys.modules.get(name), "saving"):
            _register(sys.modules[name])
    sys.meta_path.insert(0, _AfterKeras())
