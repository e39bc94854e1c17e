// Empty on purpose: see tools/install_horovod.sh.
