"""The argument `follow` of `het_tf.export`: how a native export follows training."""

from dataclasses import dataclass

from het_tf.ext.ps.python import address as addresses


@dataclass(frozen=True)
class Follow:
    """How an export follows training: the argument `follow` of `het_tf.export`.

    Attributes:
      address: The parameter server that trains the tables, `redis://HOST[:PORT][,...]`, `rediss://...` or
        `unix://PATH`, without a password and a client's certificate: the follower gets those by the
        environment's HET_SERVE_PS.
      max_age: Seconds: the largest allowed age of a served row. The age is the time since the follower asked
        the server for the state that it shows; it is unknown, and beyond, before a follower has run.
      stale: What happens beyond: "serve": rows are served, counted, and reported on stderr; "fail": the
        request fails.
      max_skew: Seconds: how much newer than the dense weights in force rows should be at most. Beyond, rows
        go on, and `het serve status` reports it. None: no limit.

    Raises:
      ValueError: An argument is out of range.
    """

    address: str
    max_age: float = 2.0
    stale: str = "serve"
    max_skew: float | None = None

    def __post_init__(self) -> None:
        """Checks the arguments."""
        if not isinstance(self.address, str):
            raise ValueError(f"address is {self.address!r}; give one such as 'redis://HOST:PORT'")
        parsed = addresses.parse(self.address)
        if parsed.public() != parsed:
            what = "a password" if parsed.has_login else "the certificate of a client"
            raise ValueError(
                f"address has {what}, which must not be in a SavedModel; leave it out, and give the follower "
                "the whole address by the environment's HET_SERVE_PS"
            )
        if not _is_time(self.max_age):
            raise ValueError(f"max_age is {self.max_age!r}; give seconds > 0")
        if self.stale not in ("serve", "fail"):
            raise ValueError(f"stale is {self.stale!r}; give 'serve' or 'fail'")
        if self.max_skew is not None and not _is_time(self.max_skew):
            raise ValueError(f"max_skew is {self.max_skew!r}; give seconds > 0, or None for no limit")


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
