"""Asks TensorFlow Serving by REST, with nothing but Python's standard library.

    python client.py --model clicks '[{"item": 1}, {"item": 4000}]'
    python client.py --model clicks '[{"item": 1}, {"item": 4000}]' --print     # shows what it would send

Each element is one sample: the signature's inputs by name, without the batch dimension.
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from typing import Any


def body(samples: list[dict[str, Any]], signature: str = "serving_default") -> dict[str, Any]:
    """The request: inputs as columns, so that each is a tensor of its own.

    Args:
      samples: The inputs of each sample, by name; all have the same names.
      signature: Of the SavedModel.

    Raises:
      ValueError: There are no samples, or they have different inputs.
    """
    if not samples or not all(isinstance(one, dict) and one.keys() == samples[0].keys() for one in samples):
        raise ValueError('samples must be a list of objects with the same inputs, such as [{"item": 1}]')
    return {
        "signature_name": signature,
        "inputs": {name: [one[name] for one in samples] for name in samples[0]},
    }


def url(host: str, model: str, version: int | None = None, label: str | None = None) -> str:
    """Where a model is asked: its newest version, one by number, or one by label."""
    which = f"/versions/{version}" if version is not None else f"/labels/{label}" if label else ""
    return f"http://{host}/v1/models/{model}{which}:predict"


def ask(address: str, request: dict[str, Any], timeout: float) -> Any:
    """The outputs: a list, or an object of lists if there are several."""
    message = urllib.request.Request(
        address, json.dumps(request).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(message, timeout=timeout) as answer:
        return json.load(answer)["outputs"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("samples", help='JSON: [{"item": 1}, ...]')
    parser.add_argument("--host", default="localhost:8501")
    parser.add_argument("--model", required=True)
    parser.add_argument("--signature", default="serving_default")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int)
    which.add_argument("--label")
    parser.add_argument("--timeout", type=float, default=5, metavar="SECONDS")
    parser.add_argument("--print", action="store_true", help="show the request and send nothing")
    options = parser.parse_args()
    address = url(options.host, options.model, options.version, options.label)
    try:
        request = body(json.loads(options.samples), options.signature)
        if options.print:
            print(f"POST {address}\n{json.dumps(request)}")
        else:
            print(json.dumps(ask(address, request, options.timeout)))
    except urllib.error.HTTPError as error:
        print(f"{address}: {error}: {error.read().decode(errors='replace')[:1000]}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"{address}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
