"""The native library, settings of this process, namespaces."""
