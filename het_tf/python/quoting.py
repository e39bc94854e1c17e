"""Names in messages: shortens long ones."""

import re

MOST = 60
"""The longest name that a message shows whole, in characters."""


def quoted(name: str) -> str:
    """Returns the name in quotes; a long one without its middle, and with its length."""
    if len(name) <= MOST:
        return repr(name)
    return f"{name[: MOST // 2]!r}...{name[-MOST // 4 :]!r} ({len(name)} characters)"


def shortened(message: str) -> str:
    """Shortens long names of tables and namespaces in a message of the core as `quoted`, but not paths."""
    return re.sub(
        rf"\b(table|namespace) '([^']{{{MOST + 1},}})'",
        lambda found: f"{found[1]} {quoted(found[2])}",
        message,
    )
