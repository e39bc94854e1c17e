"""How Python asks for a cache on a GPU."""
