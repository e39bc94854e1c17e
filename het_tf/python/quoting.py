"""Names in messages: of a long one its beginning and its end."""

import re

MOST = 60
"""Characters of a name that a message shows whole."""


def quoted(name: str) -> str:
    """The name in quotes; a long one without its middle, and with its length."""
    if len(name) <= MOST:
        return repr(name)
    return f"{name[: MOST // 2]!r}...{name[-MOST // 4 :]!r} ({len(name)} characters)"


def shortened(message: str) -> str:
    """What the core says, with long names of tables and namespaces as in `quoted`; paths stay whole."""
    return re.sub(
        rf"\b(table|namespace) '([^']{{{MOST + 1},}})'",
        lambda found: f"{found[1]} {quoted(found[2])}",
        message,
    )
