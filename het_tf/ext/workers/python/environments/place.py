"""What a launcher's variables say of one process, and how they are read."""

from collections.abc import Mapping
from dataclasses import dataclass

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """Where a process is among those that its launcher has started.

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
        for name, number, of in (
            ("rank", self.rank, self.size),
            ("local rank", self.local_rank, self.local_size),
        ):
            if not 0 <= number < of:
                raise ValueError(
                    f"{self.launcher}'s variables say {name} {number} of {of}; ranks go from 0 to {of - 1}: "
                    "remove what is left over of another launch"
                )


def number(env: Environment, name: str, default: int | None = None) -> int:
    """Returns a variable as a whole number of 0 or more.

    Args:
      env: The variables.
      name: Its name.
      default: The result where it is not set. None: it must be.

    Raises:
      ValueError: It is not set, or no such number.
    """
    text = env.get(name)
    if text is None:
        if default is None:
            raise ValueError(f"{name} is not set, though other variables of its launcher are; set it")
        return default
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{name} is '{text}'; it must be a whole number of 0 or more, or not be set")
    return int(text)


def count(env: Environment, name: str, default: int | None = None) -> int:
    """Returns a variable as a whole number of 1 or more. Otherwise as `number`."""
    value = number(env, name, default)
    if value < 1:
        raise ValueError(f"{name} is '{env[name]}'; it must be a whole number of 1 or more")
    return value


def run_id(env: Environment, found: str, launcher: str) -> str:
    """Returns HET_RUN_ID, or else the word that the launcher's own variables make.

    Raises:
      ValueError: There is neither.
    """
    word = env.get("HET_RUN_ID") or found
    if not word:
        raise ValueError(
            f"HET_RUN_ID is not set, and {launcher} gives a job no name; set it to a word that is the same "
            "for all processes of this start, and new for each start"
        )
    return word
