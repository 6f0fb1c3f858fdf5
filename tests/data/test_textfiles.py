"""Lines of files, and what is refused by file and line."""

import gzip
import resource
import sys

import pytest
import zstandard

from posenc_jax.data.textfiles import MAX_LINE_BYTES, numbered_lines
from posenc_jax.errors import UserError

PACK = {"": bytes, ".gz": gzip.compress, ".zst": lambda content: zstandard.ZstdCompressor().compress(content)}
MANY_LINES = "".join(f"line {n * n} of the file\n" for n in range(20_000)).encode()


@pytest.fixture(params=PACK)
def write(request, tmp_path):
    def write(content: bytes):
        file = tmp_path / f"text.txt{request.param}"
        file.write_bytes(PACK[request.param](content))
        return file

    return write


def test_lines_are_numbered_and_stripped_of_mark_and_ends(write):
    file = write(b"\xef\xbb\xbffirst\r\n\nthird \xc3\xa9\nlast")
    assert list(numbered_lines(file)) == [(1, "first"), (2, ""), (3, "third é"), (4, "last")]


def test_a_long_file_is_read_whole(write):
    assert sum(1 for _ in numbered_lines(write(MANY_LINES))) == 20_000


def test_frames_and_members_are_read_one_after_the_other(tmp_path):
    for ending, pack in PACK.items():
        file = tmp_path / f"text.txt{ending}"
        file.write_bytes(pack(b"one\n") + pack(b"two\n"))
        assert [line for _, line in numbered_lines(file)] == ["one", "two"]


def test_latin_1_is_refused_by_line_and_column(write):
    with pytest.raises(UserError, match=r"text\.txt.*, line 2 is not UTF-8 \(byte 0xe9 at column 4\).*iconv"):
        list(numbered_lines(write("good\ncafé\n".encode("latin-1"))))


@pytest.mark.parametrize("content", [b"\x7fELF\0\0\0\n", "UTF-16 text\n".encode("utf-16")])
def test_a_binary_file_is_refused(write, content):
    with pytest.raises(UserError, match="line 1 holds a zero byte"):
        list(numbered_lines(write(content)))


def test_a_line_of_50_mb_is_refused_and_never_held(write):
    file = write(b"short\n" + b"word " * 10_000_000 + b"\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="line 2 is longer than 10 MB"):
        list(numbered_lines(file))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert grown < 4 * MAX_LINE_BYTES


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("cut", [2, 3000])
def test_a_truncated_file_is_refused(ending, cut, tmp_path):
    file = tmp_path / f"text.txt{ending}"
    file.write_bytes(PACK[ending](MANY_LINES)[:-cut])
    with pytest.raises(UserError, match=r"cannot be read after line \d+"):
        list(numbered_lines(file))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_file_that_is_not_packed_is_refused(ending, tmp_path):
    (tmp_path / f"text{ending}").write_bytes(b"this is plain text\n")
    with pytest.raises(UserError, match="cannot be read after line 0"):
        list(numbered_lines(tmp_path / f"text{ending}"))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"none\.txt cannot be read"):
        list(numbered_lines(tmp_path / "none.txt"))
