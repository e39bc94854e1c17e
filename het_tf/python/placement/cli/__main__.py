"""`python -m het_tf.python.placement.cli` is the command `het-data`."""

import sys

from het_tf.python.placement.cli.cli import main

sys.exit(main())
