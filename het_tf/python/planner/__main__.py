"""`python -m het_tf.python.planner` is the command `het-plan`."""

import sys

from het_tf.python.planner.cli import main

sys.exit(main())
