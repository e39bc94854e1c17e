"""The extensions, and what each adds to het_tf (python/extensions.py). This imports none of them."""

from het_tf.python import extensions

extensions.ports |= {
    "address": "het_tf.ext.ps.python.address",
    "device": "het_tf.ext.gpu.python.device",
    "job_server": "het_tf.ext.ps.python.job_server",
    "ranks": "het_tf.ext.workers.python.find",
    "reports": "het_tf.ext.ps.python.reports",
    "saving": "het_tf.ext.checkpoint.python.saving",
}
extensions.commands |= {
    "run": ("het_tf.ext.workers.python.launch.cli", "start the ranks of a job, on one machine or on several"),
    "ps": ("het_tf.ext.ps.python.cli", "run parameter servers: up, down, status, reshard, exporter"),
    "ckpt": ("het_tf.ext.checkpoint.python.cli.cli", "verify checkpoints"),
    "plan": ("het_tf.ext.sizing.python.cli", "forecast the cost of a job"),
    "serve": (
        "het_tf.ext.serving.python.following.cli",
        "keep an exported model up to date while it is served",
    ),
    "publish": (
        "het_tf.ext.serving.python.publishing.cli",
        "release versions of a model, and roll them back",
    ),
    "doctor": ("het_tf.doctor", "check this installation"),
}
extensions.more_commands |= {"ps": "het_tf.ext.monitor.python.web.cli"}
