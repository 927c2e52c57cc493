"""Zstandard decompression, for the dumps of Reddit's comments."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

# The dumps are compressed with `--long=31`: the decompressor needs a window of 2 GB, and must allow it.
WINDOW: dict[int, int] = {
    zstd.DecompressionParameter.window_log_max: zstd.DecompressionParameter.window_log_max.bounds()[1]
}


class Zstandard:
    """Decompresses one frame, with the errors of bz2."""

    def __init__(self) -> None:
        self._frame = zstd.ZstdDecompressor(options=WINDOW)

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        return bool(self._frame.eof)

    @property
    def unused_data(self) -> bytes:
        """The bytes that came after the end of the frame."""
        return bytes(self._frame.unused_data)

    def decompress(self, data: bytes) -> bytes:
        """Return the next bytes.

        Raises:
            OSError: they are damaged.
        """
        try:
            return bytes(self._frame.decompress(data))
        except zstd.ZstdError as error:
            raise OSError(str(error).rstrip(".")) from error
