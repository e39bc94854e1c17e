// Empty on purpose: see tools/horovod_shims/README.md.
