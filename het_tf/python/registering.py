"""What `import het_tf` registers, so that programs can load models with layers or ops of het_tf.

A program that only loads a model uses no name of het_tf, and Keras knows only classes whose modules are
imported. So Keras' registry gets a stand-in for each class, which imports its module when Keras asks for it.
And `tf.saved_model.load` of a graph with ops of het_tf loads the library with them.
This module imports neither Keras nor TensorFlow: if they are not imported yet, it waits for that.
"""

import functools
import importlib
import sys
from importlib.abc import MetaPathFinder
from typing import Any

PACKAGE = "het_tf"
# Module -> the names that its classes are registered under.
NAMES = {
    "keras": "Embedding EmbeddingCollection IsNotMasked MaskedEmbedding",
}
_KERAS, _TENSORFLOW = ("keras", "tf_keras"), "tensorflow"


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


def _register(imported: Any) -> None:
    """Registers what Keras, or TensorFlow, needs."""
    if getattr(imported, "__name__", "") == _TENSORFLOW:
        if not hasattr(imported, "saved_model"):  # of another version: its users get a message of their own
            return
        imported.saved_model.load = _with_ops(imported.saved_model.load)
        return
    objects = imported.saving.get_custom_objects()
    for module, names in NAMES.items():
        for name in names.split():
            key = f"{PACKAGE}>{name}"
            objects.setdefault(key, _StandIn(objects, key, module))


def _with_ops(load: Any) -> Any:
    """`tf.saved_model.load` that loads the ops of het_tf for a graph that has some."""

    @functools.wraps(load)
    def load_with_ops(*args: Any, **kwargs: Any) -> Any:
        try:
            return load(*args, **kwargs)
        except Exception as error:
            if "Op type not registered 'Het" not in str(error):
                raise
        importlib.import_module(f"{PACKAGE}.python.session.native")
        return load(*args, **kwargs)

    return load_with_ops


class _AfterImport(MetaPathFinder):
    """Registers when the import of Keras or TensorFlow ends."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """See importlib.abc.MetaPathFinder."""
        if name not in (*_KERAS, _TENSORFLOW):
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
    """Registers now, or when Keras or TensorFlow is imported."""
    for name, needs in [*((keras, "saving") for keras in _KERAS), (_TENSORFLOW, "saved_model")]:
        if hasattr(sys.modules.get(name), needs):
            _register(sys.modules[name])
    sys.meta_path.insert(0, _AfterImport())
