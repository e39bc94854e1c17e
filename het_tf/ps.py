"""`python -m het_tf.ps` is the command `het-ps`: Redis and Valkey servers that hold tables.

See docs/het-ps.md, or `het-ps --help`. It needs neither TensorFlow nor the native library.
"""

import sys

from het_tf.python.ps.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
