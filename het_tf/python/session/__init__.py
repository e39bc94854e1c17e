"""State of the process: the native library, settings, the connection to a store, scopes, collectives."""
