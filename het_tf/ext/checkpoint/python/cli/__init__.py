"""The commands `het ckpt`, which need no TensorFlow: show, check and merge checkpoints.

`inspect` reads the manifests; `verify` and `merge` read rows with the native library, block by block.
"""
