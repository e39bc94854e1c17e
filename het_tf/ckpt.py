"""`python -m het_tf.ckpt` is the command `het-ckpt`: inspect, verify, merge, compare and convert checkpoints.

See docs/checkpoints.md, or `het-ckpt --help`. It needs neither TensorFlow nor the native library.
"""

import sys

try:
    from het_tf.python.checkpoint.cli.cli import main
except ModuleNotFoundError as error:
    if error.name not in ("numpy", "rich"):
        raise
    sys.exit(f"het-ckpt: {error}; run: {sys.executable} -m pip install numpy 'rich>=13'")

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
