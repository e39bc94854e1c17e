"""`python -m het_tf.python.checkpoint.cli` is the command `het-ckpt`."""

import sys

from het_tf.python.checkpoint.cli.cli import main

sys.exit(main())
