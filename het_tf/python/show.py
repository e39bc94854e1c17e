"""How the commands show counts and sizes."""


def number(value: float) -> str:
    """A count in at most five characters: 950, 12.3k, 4.56M."""
    for unit in ("", "k", "M", "G"):
        if value < 1000:
            return f"{value:.3g}{unit}" if unit else f"{value:.0f}"
        value /= 1000
    return f"{value:.3g}T"


def size(value: float) -> str:
    """Bytes: 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1024:
            return f"{value:.3g} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1024
    return f"{value:.3g} TB"
