"""The command `het-ckpt`: shows, checks and merges checkpoints.

All commands except `merge` read files with numpy, block by block. They need neither TensorFlow nor the
plugin, and never hold a whole table: `view` holds 8 bytes for each key of an increment, `verify` 8 bytes for
each key of one file. `merge` reads and writes rows with the native library, which holds 24 bytes for each
row of the file being written, and some megabytes (core/checkpoint/merge.h).
"""
