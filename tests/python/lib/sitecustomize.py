"""Processes that tests start do not import optional packages of Keras: a third of its import's time."""

import sys

sys.modules.update({"matplotlib": None, "sklearn": None})
