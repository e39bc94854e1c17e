"""Trains two towers and searches them: python examples/two_tower.py --data gene_papers

Each user (a paper of gene_papers) asks for the items (genes) of the largest scores; recall@K says how often
the one that was left out is among K.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import arguments
import common

# epochs, batch size, temperature
DATA = {"movielens": (3, 256, 0.05), "gene_papers": (1, 2048, 0.1)}


def parser() -> arguments.Parser:
    """The arguments."""
    result = arguments.Parser(
        description="Trains two towers (Yi et al., 2019) with tables of het_tf, and searches their index.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=100),
    )
    whole, positive = arguments.number(int, 1), arguments.number(float, 0)
    add = result.add_argument
    add("--data", choices=DATA, default="movielens", help="default movielens")
    add("--epochs", type=whole, metavar="N", help="passes over the training part; default by data set")
    add("--batch-size", type=whole, metavar="N", help="rows of a batch; default by data set")
    add("--learning-rate", type=positive, metavar="X", help="of the tables; default the optimizer's")
    add("--no-logq", action="store_true", help="do not correct for how often items are met")
    add("--negatives", type=arguments.number(int, 0), default=0, metavar="K",
        help="items that each batch is given beside its own, drawn evenly; default 0")  # fmt: skip
    add("--temperature", type=positive, metavar="T", help="of the softmax; default by data set")
    add("--k", type=whole, default=100, metavar="K", help="items that are found; default 100")
    add("--seed", type=arguments.number(int, 0, 2**31), default=1, metavar="N", help="default 1")
    add("--export", type=Path, metavar="DIR", help="write the user's tower there, as a SavedModel")
    return result


def items_of(description: Any, train: Any) -> dict[str, Any]:
    """The fields of each item that the training part has."""
    import numpy as np

    fields = [field.name for field in description.side(item=True).fields]
    columns = train.inputs()
    first = np.unique(columns[fields[0]], return_index=True)[1]
    return {name: columns[name][first] for name in fields}


def run(options: argparse.Namespace) -> None:
    """Loads, trains, indexes, searches."""
    import tensorflow as tf

    import het_tf

    epochs, batch_size, temperature = DATA[options.data]
    rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
    history = {"history": 20} if options.data == "movielens" else {}
    train, _, test, description = het_tf.data.load(options.data, **history)
    train, test = train.take(train.label > 0), test.take(test.label > 0)
    items = items_of(description, train)
    name = next(iter(items))
    tf.keras.utils.set_random_seed(options.seed)
    model = het_tf.models.TwoTower(
        description,
        temperature=options.temperature or temperature,
        logq=not options.no_logq,
        drawn_from=len(items[name]) if options.negatives else None,
        hidden_units=(64,),
        table_optimizer=het_tf.optimizers.RowWiseAdagrad(**rate),
        seed=options.seed,
    )
    model.compile(tf.keras.optimizers.Adam(1e-3))
    data = train.to_tf(options.batch_size or batch_size, shuffle=True, seed=options.seed, drop_remainder=True)
    if options.negatives:
        data = het_tf.models.mixed_negatives(data, items, options.negatives, options.seed)
    began = time.monotonic()
    model.fit(data, epochs=options.epochs or epochs, shuffle=False, verbose=2)
    print(f"trained for {time.monotonic() - began:.1f} s")

    began = time.monotonic()
    index = model.index(items)
    print(f"index of {len(index):,} items in {time.monotonic() - began:.2f} s")
    found = total = 0
    for inputs, _ in test.to_tf(1024):
        users = model.user_tower(inputs, training=False)
        found += int((index.search(users, options.k)[1] == inputs[name].numpy()[:, None]).sum())
        total += len(users)
    print(f"recall@{options.k} {found / total:.4f} ({total:,} rows; {options.k / len(index):.4f} by chance)")
    if options.export is not None:
        het_tf.export(model.user_tower, options.export, verbose=False)
        print(f"SavedModel: {options.export} (saved_model_cli show --all --dir {options.export} shows it)")


def main() -> None:
    """Runs, or says in one line why not."""
    options = parser().parse_args()
    try:
        run(options)
    except (ImportError, ValueError, OSError, RuntimeError) as error:
        common.fail(parser(), str(error))


if __name__ == "__main__":
    main()
