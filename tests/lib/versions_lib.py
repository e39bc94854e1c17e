"""Versions for tests of their stream."""

from typing import Any

from het_tf.ext.serving.python.publishing.versions import Version

DIGEST = "0123456789abcdef" * 4


def version(number: int = 1, **changes: Any) -> Version:
    fields = dict(dense="redis:het::dense:x", sha256=DIGEST, bytes=5, signature=DIGEST, cut=("1:2", "3:4"),
                  trained_through={"day": [1, None]}, time=1.25)  # fmt: skip
    return Version(number, **{**fields, **changes})
