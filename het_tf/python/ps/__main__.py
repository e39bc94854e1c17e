"""`python -m het_tf.python.ps` is the command `het-ps`."""

import sys

from het_tf.python.ps.cli import main

sys.exit(main())
