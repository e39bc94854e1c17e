"""Trains a ranking model of het_tf.models: python examples/train.py --model din --data movielens"""

import arguments
import common

MODELS = {
    "deepfm": "DeepFM (Guo et al., 2017)",
    "dcn": "DCN-v2 (Wang et al., 2021)",
    "dlrm": "DLRM (Naumov et al., 2019)",
    "xdeepfm": "xDeepFM (Lian et al., 2018)",
    "autoint": "AutoInt (Song et al., 2019)",
    "din": "DIN (Zhou et al., 2018), with the films that a user liked before; --data movielens",
    "mmoe": "MMoE (Ma et al., 2018), on two labels; --data census or movielens",
    "ple": "PLE (Tang et al., 2020), likewise",
}
SEVERAL_LABELS = ("mmoe", "ple")


def build(description, options, model_arguments):
    """Rows of all tables are trained by --optimizer."""
    from het_tf import models

    if options.model == "dcn":
        model_arguments |= {
            "cross_layers": options.cross_layers,
            "cross_rank": options.cross_rank,
            "structure": options.structure,
        }
    if options.model == "mmoe":
        model_arguments["experts"] = options.experts
    if options.model == "ple":
        model_arguments["levels"] = options.levels
    known = {name.lower(): name for name in models.__all__} | {"dcn": "DCNv2"}
    return getattr(models, known[options.model])(description, **model_arguments)


def parser():
    """The arguments of all examples, and those of single models."""
    result = arguments.parser(
        "Trains a ranking model with tables of het_tf; wide_deep.py trains Wide & Deep."
    )
    lines = "; ".join(f"{name}: {what}" for name, what in MODELS.items())
    result.add_argument("--model", choices=MODELS, default="deepfm", help=f"{lines}; default deepfm")
    result.add_argument(
        "--history",
        type=arguments.number(int, 1),
        metavar="L",
        help="films of the history, of --data movielens; default 20 for din, else none",
    )
    cross = result.add_argument_group("cross layers of dcn")
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
    experts = result.add_argument_group("experts of mmoe and ple; --hidden is of each")
    experts.add_argument(
        "--experts", type=arguments.number(int, 1), default=4, metavar="E", help="of mmoe; default 4"
    )
    experts.add_argument(
        "--levels", type=arguments.number(int, 1), default=2, metavar="L", help="of ple; default 2"
    )
    return result


def load(data, options):
    """What the model is trained on: with a history or two labels where it reads them."""
    import het_tf

    history = options.history or (20 if options.model == "din" else None)
    labels = 2 if options.model in SEVERAL_LABELS else 1
    return het_tf.data.load(data, history=history, labels=labels)


if __name__ == "__main__":
    common.main(parser(), build, load=load)
