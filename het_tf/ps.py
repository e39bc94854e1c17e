"""`python -m het_tf.ps` is the command `het-ps`: Redis and Valkey servers that hold tables.

See docs/het-ps.md, or `het-ps --help`. It needs neither TensorFlow nor the native library.
"""

import sys

try:
    from het_tf.python.ps.cli import main
except ModuleNotFoundError as error:
    if error.name not in ("redis", "rich"):
        raise
    sys.exit(f"het-ps: {error}; run: {sys.executable} -m pip install 'redis>=8' 'rich>=13'")

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
