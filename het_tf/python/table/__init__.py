"""Tables: declaration, caching and access, without Keras."""
