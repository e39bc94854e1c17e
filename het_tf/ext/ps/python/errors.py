"""The error of server operations, for operators."""


class ServerError(RuntimeError):
    """A server did not do what it was asked. The message names the server, the reason and the remedy."""
