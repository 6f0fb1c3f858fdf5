"""Lines of text files, plain or packed, in bounded memory; what is no text is refused by file and line."""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from posenc_jax.errors import UserError

MAX_LINE_BYTES = 10_000_000


def numbered_lines(file: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file from 1, without their ends and without a byte-order mark.

    Raises `UserError`, by file and line, for what cannot be read or is no UTF-8 text, and for a line of more than
    `MAX_LINE_BYTES`.
    """
    number = 0
    try:
        with _open(file) as stream:
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                yield number, _decode(line, file, number)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise UserError(f"{file} cannot be read after line {number}: {error}") from error


def _decode(line: bytes, file: Path, number: int) -> str:
    if len(line) > MAX_LINE_BYTES:
        raise UserError(
            f"{file}, line {number} is longer than {MAX_LINE_BYTES // 1_000_000} MB; "
            "break it into documents, one a line (jsonl:) or with blank lines between (text:)"
        )
    if number == 1:
        line = line.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in line:
        raise UserError(f"{file}, line {number} holds a zero byte: it is a binary file or UTF-16, not UTF-8 text")
    try:
        return line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}, line {number} is not UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1}); "
            "if it is Latin-1, convert it: iconv -f LATIN1 -t UTF-8"
        ) from error


def _open(file: Path) -> IO[bytes]:
    if file.suffix == ".gz":
        return gzip.open(file, "rb")
    if file.suffix == ".zst":
        return io.BufferedReader(_ZstdReader(file), 1 << 16)
    return open(file, "rb")


class _ZstdReader(io.RawIOBase):
    """Unpacks frame after frame. zstandard's own reader ends at a truncated frame without a word."""

    CHUNK = 4096  # packed bytes at a time: what they unpack to is held in memory

    def __init__(self, file: Path) -> None:
        self._packed = open(file, "rb")
        self._frame, self._unpacked, self._rest = None, memoryview(b""), b""

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._packed.close()
        super().close()

    def readinto(self, buffer: memoryview) -> int:
        while not self._unpacked:
            chunk = self._rest or self._packed.read(self.CHUNK)
            if not chunk:
                if self._frame is not None and not self._frame.eof:
                    raise EOFError("it ends in the middle of a zstd frame")
                return 0
            self._unpack(chunk)
        size = min(len(buffer), len(self._unpacked))
        buffer[:size] = self._unpacked[:size]
        self._unpacked = self._unpacked[size:]
        return size

    def _unpack(self, chunk: bytes) -> None:
        import zstandard

        if self._frame is None or self._frame.eof:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            self._unpacked = memoryview(self._frame.decompress(chunk))
        except zstandard.ZstdError as error:
            raise OSError(str(error)) from error
        self._rest = self._frame.unused_data
