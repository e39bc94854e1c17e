"""The command `het-ckpt`: looks at checkpoints, checks, merges and converts them.

Everything but `merge` works with numpy on files, block by block: neither TensorFlow nor the plugin is needed,
and no table is ever in memory as a whole. What is held is 8 bytes for each key of an increment (`view`), and
8 for each key of one file (`verify`). `merge` has the native library read and write rows: 24 bytes for each
row of the file that is written, and some megabytes (core/checkpoint/merge.h).
"""
