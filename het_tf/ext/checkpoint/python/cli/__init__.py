"""The command `het ckpt verify`, which reads rows with the native library, block by block: no TensorFlow."""
