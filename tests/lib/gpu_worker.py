"""Runs the checks of gpu_checks.py in this process, which test_gpu_cache.py starts.

A pluggable device and the ops' kernels for GPUs stay in the process that has loaded them. Without a GPU the
device is libhet_poisoned_gpu.so (tests/ext/gpu/pluggable) and libhet_cuda_host.so works it; HET_TEST_GPU=real
takes TensorFlow's own and libhet_cuda.so.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from pathlib import Path

import tensorflow as tf
from gpu_checks import CHECKS
from gpu_checks_lib import REAL, fresh

from het_tf.ext.gpu.python import device
from het_tf.python.session import connection


def main():
    """Arguments: where to write what came of each check, and the checks; none: all."""
    target, names = Path(sys.argv[1]), sys.argv[2:] or list(CHECKS)
    if REAL:
        tf.config.experimental.enable_tensor_float_32_execution(False)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    else:
        from tensorflow.python.framework import load_library

        load_library.load_pluggable_device_library(os.environ["HET_TEST_POISONED_GPU"])
    if "HET_TEST_GPU_OPS" in os.environ:  # built for another TensorFlow than the one in het_tf/lib
        device.GPU_OPS = Path(os.environ["HET_TEST_GPU_OPS"])
    tf.debugging.set_log_device_placement(True)  # for devices_of
    tf.config.set_soft_device_placement(True)
    device.start()
    connection.connect()
    outcome = {}
    for name in names:
        outcome[name] = "the process ended in it"
        target.write_text(json.dumps(outcome))
        try:
            CHECKS[name]()
            outcome[name] = "ok"
        except BaseException:
            outcome[name] = traceback.format_exc()
        with contextlib.suppress(Exception):
            fresh()
        target.write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
