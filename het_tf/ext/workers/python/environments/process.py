"""What a launcher's variables say of one process, and how they are read."""

from collections.abc import Mapping
from dataclasses import dataclass

Environment = Mapping[str, str]
SECRET = "HET_RUN_SECRET"  # which only the processes of a run know (joining.py); printed nowhere


@dataclass(frozen=True)
class Process:
    """A process among those that its launcher has started.

    Attributes:
      launcher: Its name, such as "Slurm".
      rank: From 0 to size - 1.
      size: How many processes there are.
      local_rank: The number of the process on its machine.
      local_size: How many there are on its machine.
      run_id: A word that all processes of one start of the job share. Where the launcher can tell, a restart
        has another.
    """

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    run_id: str

    def __post_init__(self) -> None:
        local = ("local rank", self.local_rank, self.local_size)
        for name, rank, size in (("rank", self.rank, self.size), local):
            if not 0 <= rank < size:
                raise ValueError(
                    f"{self.launcher}'s variables say {name} {rank} of {size}; ranks go from 0 to {size - 1}"
                    "; remove what is left over of another launch"
                )

    def __str__(self) -> str:
        local = f"{self.local_rank} of {self.local_size} on its node"
        return f"{self.launcher}: rank {self.rank} of {self.size}, {local}, run {self.run_id}"


def number(env: Environment, name: str, default: int | None = None, least: int = 0) -> int:
    """Returns a variable as a whole number.

    Args:
      env: The variables.
      name: Its name.
      default: The result where it is not set. None: it must be.
      least: The smallest that it may be.

    Raises:
      ValueError: It is not set, or no such number.
    """
    text = env.get(name)
    if text is None and default is not None:
        return default
    if text is None:
        raise ValueError(f"{name} is not set, though other variables of its launcher are; set it")
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ValueError(f"{name} is '{text}'; it must be a whole number of {least} or more, or not be set")
    return int(text)


def run_id(env: Environment, found: str, launcher: str) -> str:
    """Returns HET_RUN_ID, or else the word that the launcher's own variables make.

    Raises:
      ValueError: There is neither.
    """
    if word := env.get("HET_RUN_ID") or found:
        return word
    raise ValueError(
        f"HET_RUN_ID is not set, and {launcher} gives a job no name; set it to a word that is the same for "
        "all processes of this start, and new for each start"
    )


def read(env: Environment, launcher: str, names: tuple[str, ...], word: str, local_size: int = 1) -> Process:
    """Returns the process that four variables say.

    Args:
      env: The variables.
      launcher: Its name.
      names: Those of rank, size, local rank and local size; the last two need not be set.
      word: What the launcher calls this run; "": nothing.
      local_size: Where its variable is not set.
    """
    local = number(env, names[2], 0), number(env, names[3], local_size, least=1)
    size = number(env, names[1], least=1)
    return Process(launcher, number(env, names[0]), size, *local, run_id(env, word, launcher))
