"""CRC-32C in numpy against published values and the definition."""

import numpy as np
import pytest

from het_tf.python.checkpoint import crc32c as module
from het_tf.python.checkpoint.crc32c import HIGH, LOW, MIDDLE, REFLECTED, crc32c


def by_definition(data: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (REFLECTED if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# RFC 3720, B.4, and the check value of the CRC catalogue.
KNOWN = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), KNOWN)
def test_published_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected
    assert crc32c(np.frombuffer(data, np.uint8)) == expected


def test_the_identity_that_it_rests_on() -> None:
    power, powers = 1 << 31, {}
    for i in range(HIGH + 1):
        powers[i] = power
        power = power >> 1 ^ (REFLECTED if power & 1 else 0)
    assert powers[HIGH] ^ powers[MIDDLE] ^ powers[LOW] ^ powers[0] == 0


EDGES = [*range(1, 20), HIGH - 1, HIGH, HIGH + 1, 2 * HIGH, 8 * HIGH, 8 * HIGH + 3, 100_001]


@pytest.mark.parametrize("n", EDGES)
def test_every_path_agrees_with_the_definition(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8).tobytes()
    expected = by_definition(data)
    assert crc32c(data) == expected
    assert crc32c(data, 0x12345678) == by_definition(data, 0x12345678)
    monkeypatch.setattr(
        module, "_BLOCK", 7
    )  # many blocks, each a little longer than what is left of the last
    assert crc32c(data) == expected


def test_in_pieces_it_is_that_of_the_whole() -> None:
    data = np.random.default_rng(1).integers(0, 256, 3_000_017, dtype=np.uint8).tobytes()
    whole = crc32c(data)
    for pieces in ([1, 3, 2], [70_001, 0, 5], [2_000_000]):
        crc, begin = 0, 0
        for n in pieces:
            crc, begin = crc32c(data[begin : begin + n], crc), begin + n
        assert crc32c(data[begin:], crc) == whole


def test_one_flipped_bit_anywhere_shows() -> None:
    data = np.random.default_rng(2).integers(0, 256, 1_200_000, dtype=np.uint8)
    whole = crc32c(data)
    for at in np.random.default_rng(3).integers(0, len(data), 50):
        data[at] ^= 16
        assert crc32c(data) != whole
        data[at] ^= 16


def test_arrays_of_any_dtype_and_a_read_only_buffer_stay_unchanged() -> None:
    floats = np.random.default_rng(4).random((1000, 17), np.float32)
    before = floats.copy()
    floats.setflags(write=False)
    assert crc32c(floats) == crc32c(before.tobytes()) == crc32c(memoryview(before.tobytes()))
    assert np.array_equal(floats, before)
    assert crc32c(before[::2]) == crc32c(before[::2].tobytes())  # strided
