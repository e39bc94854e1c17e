"""`python -m het_tf.python.following` is the command `het-serve`."""

import sys

from het_tf.python.following.cli import main

sys.exit(main())
