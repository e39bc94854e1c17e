"""Export to SavedModels that serve (public as `het_tf.export` and `het_tf.serving.check`).

front.py       the function `export`: checks, traces, writes, renames
formats.py     the formats `Portable` and `Native`, and `Follow`
signatures.py  inputs and outputs of a SavedModel
redirect.py    redirects lookups of the layers to a backend while a model is traced
rows.py        rows of a table at one moment, filtered
portable.py    the backend of pure TensorFlow ops; index.py and initial.py are its parts
native.py      the backend of memory-mapped files
quantise.py    rows of 16 and 8 bits
check.py       the function `check`
"""
