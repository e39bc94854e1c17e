"""Export to SavedModels that serve (public as `het_tf.export` and `het_tf.check_export`).

front.py       the function `export`: checks, traces, writes, renames
signatures.py  what a SavedModel is asked with
redirect.py    the seam: lookups of the layers go to a backend while a model is traced
rows.py        rows of a table at one moment, filtered
portable.py    the backend of pure TensorFlow ops; index.py and initial.py are its parts
quantise.py    rows of 16 and 8 bits
check.py       the function `check_export`
"""
