"""Binds every call and command that a text names against the real thing.

    python tools/check_calls.py

A message that advises `het_tf.init(deadline=...)` must not lead to a TypeError. Texts are the strings of
het_tf's Python (messages and docstrings) and C++ (messages), and the Markdown files and notebooks, but for
those that tell of the past. In them:

* A call such as `het_tf.Table("t").lookup(ids, stored=True)` or `Cache(rows=...)` is parsed; names must be
  there, and the arguments must bind to the signature. `...` and trailing `=` stand for any value. A bare
  name, or a method of an unknown object, is right if any public name fits. In blocks of Python, variables
  keep the class that they were made of.
* A command such as `het ps up --shards 2` must have the options and the number of words that its parser
  takes, `python FILE --option` a file that knows the option, and `make x` a target.

Prints one line for each fault; the exit status is their presence. It needs the built package.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

import calls.commands
import calls.python
from calls.texts import Text, texts

# Fewer of a kind mean that the extraction has failed.
LEAST = {"message call": 100, "page call": 200, "message command": 60, "page command": 100}


def faults(found: Iterable[Text], counts: Counter[str]) -> Iterator[str]:
    """One line for each fault of some texts; counts what was looked at, by kind."""
    reader = calls.python.Reader()
    for text in found:
        calls_of_text, wrong = reader.read(text)
        commands, bad = calls.commands.read(text)
        kind = "page" if re.search(r"\.(md|ipynb):", text.where) else "message"
        counts[f"{kind} call"] += calls_of_text
        counts[f"{kind} command"] += commands
        yield from (f"{text.where}: {fault}" for fault in [*wrong, *bad])


def main() -> int:
    """Prints the faults."""
    counts: Counter[str] = Counter()
    found = list(dict.fromkeys(faults(texts(), counts)))
    found += [
        f"only {counts[kind]} of {kind}s were found, not {least}: the extraction has failed"
        for kind, least in LEAST.items()
        if counts[kind] < least
    ]
    print(
        "\n".join(found) or ", ".join(f"{count} {kind}s" for kind, count in sorted(counts.items())) + " bind"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
