"""`python -m het_tf` is the command `het`."""

import sys

from het_tf.python.cli import main

sys.exit(main())
