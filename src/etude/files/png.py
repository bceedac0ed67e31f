"""Pictures as PNG files, with nothing but the standard library."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from etude.files.video import as_rgb

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _BITS = 2, 8


def png_bytes(picture: np.ndarray) -> bytes:
    """Return a picture of bytes, (H, W, 3) or grey, as the content of a PNG file."""
    pixels = as_rgb(picture)
    height, width = pixels.shape[:2]
    # Each line of the file begins with how it is filtered: not at all.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, _BITS, _RGB, 0, 0, 0)
    return _SIGNATURE + b"".join(
        _chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
