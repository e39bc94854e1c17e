"""The one place that holds the version; pyproject.toml and CMakeLists.txt read it."""

__version__ = "0.1.0"
