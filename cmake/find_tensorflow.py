"""Prints "version;package directory" of the TensorFlow wheel of this Python, or nothing."""

import importlib.metadata
import importlib.util

spec = importlib.util.find_spec("tensorflow")
if spec and spec.submodule_search_locations:
    # The version is not in the headers since TF 2.20; several distributions carry the same package.
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            print(f"{importlib.metadata.version(name)};{spec.submodule_search_locations[0]}")
            break
        except importlib.metadata.PackageNotFoundError:
            pass
