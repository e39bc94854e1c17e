"""What goes wrong with servers, for whoever runs them."""


class ServerError(Exception):
    """A server does not do what was asked of it. The message says which one, why, and what to do."""
