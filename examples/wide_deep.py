"""Trains Wide & Deep (Cheng et al., 2016): python examples/wide_deep.py --data census"""

import arguments
import common


def build(description, options, model_arguments):
    """Wide weights are trained by Ftrl with L1, rows of the deep part by --optimizer."""
    import het_tf

    return het_tf.models.WideDeep(description, **model_arguments)


if __name__ == "__main__":
    common.main(arguments.parser("Trains Wide & Deep (Cheng et al., 2016) with tables of het_tf."), build)
