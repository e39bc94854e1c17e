"""Trains DCN-v2 (Wang et al., 2021): python examples/dcn.py --data criteo_like:1000000"""

import arguments
import common


def build(description, options, model_arguments):
    """Cross layers beside (or below) a multi-layer perceptron."""
    import het_tf

    return het_tf.models.DCNv2(
        description,
        cross_layers=options.cross_layers,
        cross_rank=options.cross_rank,
        structure=options.structure,
        **model_arguments,
    )


def parser():
    """The arguments of all examples, and those of the cross layers."""
    result = arguments.parser("Trains DCN-v2 (Wang et al., 2021) with tables of het_tf.")
    cross = result.add_argument_group("cross layers")
    cross.add_argument(
        "--cross-layers", type=arguments.number(int, 0), default=2, metavar="L", help="default 2"
    )
    cross.add_argument(
        "--cross-rank",
        type=arguments.number(int, 1),
        metavar="R",
        help="rank of their matrices; default full",
    )
    cross.add_argument(
        "--structure", choices=("parallel", "stacked"), default="parallel", help="default parallel"
    )
    return result


if __name__ == "__main__":
    common.main(parser(), build)
