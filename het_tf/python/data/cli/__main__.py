"""`python -m het_tf.python.data.cli` is the command `het-data`."""

import sys

from het_tf.python.data.cli.cli import main

sys.exit(main())
