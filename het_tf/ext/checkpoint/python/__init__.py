"""Checkpoints of tables: files, manifest, saving, restoring."""
