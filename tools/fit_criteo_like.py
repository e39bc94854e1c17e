"""Fits THETA of het_tf/zoo/data/criteo_curves.py to criteo_like.json; prints the constants and the fit.

python tools/fit_criteo_like.py
"""

import math

from het_tf.zoo.data.criteo_curves import Curve, criteo_like_parameters, make_curve


def fit(field: dict) -> tuple[float, Curve]:
    """Returns the concentration at which `field` has its `unique_in_8192`, by bisection, and the curve."""
    given = math.log(field["pitman_yor"]["theta"])
    low, high = given - 4, given + 5
    for _ in range(24):
        middle = (low + high) / 2
        if make_curve(field, math.exp(middle)).expected_unique(8192) < field["unique_in_8192"]:
            low = middle
        else:
            high = middle
    theta = float(f"{math.exp(high):.4g}")
    return theta, make_curve(field, theta)


def main() -> None:
    parameters = criteo_like_parameters()
    curves = []
    for field in parameters["fields"]:
        theta, curve = fit(field)
        curves.append(curve)
        print(
            f'    "{field["name"]}": {theta:g},  # unique in 8192: {curve.expected_unique(8192):.0f}, '
            f"wanted {field['unique_in_8192']}"
        )
    for batch, wanted in parameters["unique_ids_per_batch"].items():
        unique = sum(curve.expected_unique(int(batch)) for curve in curves)
        print(f"batch {batch}: {unique:.0f} unique ids, wanted {wanted} ({unique / wanted - 1:+.1%})")


if __name__ == "__main__":
    main()
