"""The library of the readers, libhet_inputs.so: its ops and its C functions (inputs/capi.h)."""

from het_tf.python import versions
from het_tf.python.library import caller, load

ops, library = load(versions.INPUTS)
call = caller(library)
