"""How much a file may decode to: files are not trusted, and a few bytes can claim or expand to gigabytes."""

from __future__ import annotations

import os

from dihedral.errors import DihedralError

SETTING = "DIHEDRAL_MAX_DECODED_MB"
MAX_RATIO = 100  # decoded to stored size; triples usually compress ten times
MIN_DECODED = 64 << 20  # bytes that any file may decode to, however small it is
DECODER_MEMORY = 256 << 20  # that a decoding process may take besides what it decodes
DECODER_SECONDS = 8  # processor time, and one more for every 64 MiB of decoded data
SECONDS_PER_BYTE = 1 / (64 << 20)


def max_decoded(size: int) -> int:
    """The bytes that a file of this size may decode to: 100 times its size, at least 64 MiB, or the setting.

    >>> max_decoded(1000) >> 20, max_decoded(10**9) // 10**9
    (64, 100)
    """
    given = os.environ.get(SETTING)
    if not given:
        return max(MIN_DECODED, MAX_RATIO * size)
    if not given.isascii() or not given.isdigit() or not 0 < int(given) < 1 << 32:
        raise DihedralError(f"{SETTING} is {given!r:.80}; it must be a whole number of MiB")
    return int(given) << 20


def decoder_limits(size: int) -> tuple[int, int]:
    """The memory in bytes and the processor time in seconds that decoding a file of this size may take."""
    decoded = max_decoded(size)
    return DECODER_MEMORY + decoded, DECODER_SECONDS + int(decoded * SECONDS_PER_BYTE)


def too_large(where: str, limit: int, kind: str = "file") -> DihedralError:
    return DihedralError(
        f"{kind} {where!r} unpacks to more than {limit >> 20} MiB, far beyond its size; if you trust it, "
        f"unpack it and give what it holds, or set {SETTING}"
    )
