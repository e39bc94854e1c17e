"""Processes that tests start import no optional packages of Keras, and seldom look for garbage."""

import gc
import sys

gc.set_threshold(100_000, 50, 100)
sys.modules.update({"matplotlib": None, "sklearn": None})
