"""Trains DeepFM (Guo et al., 2017): python examples/deepfm.py --data movielens"""

import arguments
import common


def build(description, options, model_arguments):
    """First-order weights and vectors are both trained by --optimizer."""
    import het_tf

    return het_tf.models.DeepFM(description, **model_arguments)


if __name__ == "__main__":
    common.main(arguments.parser("Trains DeepFM (Guo et al., 2017) with tables of het_tf."), build)
