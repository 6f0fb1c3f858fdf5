"""Every form of packing keeps every token, in order."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posenc_jax.data.packing import OPEN_ROWS, PACKINGS, pack_documents, pack_full_sentences
from posenc_jax.data.tokenizer import CLS, SEP

SHAPES = st.lists(st.lists(st.integers(0, 30), max_size=6), max_size=90)  # tokens of each sentence of each document


def numbered(shapes):
    """Documents whose tokens are all different: 10, 11, 12, ... in the order of the text."""
    count = iter(range(10, 10**9))
    return [[[next(count) for _ in range(size)] for size in document] for document in shapes]


def ordinary(tokens):
    return [token for token in tokens if token >= 10]


def segments(rows):
    for tokens, lengths in rows:
        start = 0
        for length in lengths:
            yield tokens[start : start + length]
            start += length


@pytest.mark.parametrize("name", PACKINGS)
@given(shapes=SHAPES, length=st.integers(8, 40))
def test_no_token_is_lost_and_rows_fit(name, shapes, length):
    documents = numbered(shapes)
    rows = list(PACKINGS[name](documents, length))
    assert all(sum(lengths) == len(tokens) <= length for tokens, lengths in rows)
    pieces = [ordinary(piece) for piece in segments(rows)]
    text = list(chain.from_iterable(chain.from_iterable(documents)))
    assert all(piece for piece in pieces)
    assert list(chain.from_iterable(sorted(pieces))) == text  # pieces are unbroken stretches, together all of it


@given(shapes=SHAPES, length=st.integers(8, 40))
def test_full_sentences_keeps_the_order_and_marks_every_end(shapes, length):
    documents = numbered(shapes)
    rows = list(pack_full_sentences(documents, length))
    assert ordinary(chain.from_iterable(tokens for tokens, _ in rows)) == ordinary(chain(*chain(*documents)))
    assert all(lengths == [len(tokens)] and tokens[0] == CLS and tokens[-1] == SEP for tokens, lengths in rows)
    last = {sentence[-1] for sentence in chain(*documents) if sentence}
    first_of_document = {next(chain(*document), None) for document in documents}
    for tokens, _ in rows:
        for at, token in enumerate(tokens):
            if token in last:
                assert tokens[at + 1] == SEP
            if token in first_of_document and at > 1:  # inside a row, two [SEP] between documents
                assert tokens[at - 2 : at] == [SEP, SEP]
        assert tokens[1] != SEP and tokens[-2:] != [SEP, SEP]


@given(shapes=SHAPES, length=st.integers(8, 40))
def test_full_sentences_cuts_only_sentences_longer_than_a_row(shapes, length):
    documents = numbered(shapes)
    row_of = {token: n for n, (tokens, _) in enumerate(pack_full_sentences(documents, length)) for token in tokens}
    for sentence in chain(*documents):
        if 0 < len(sentence) <= length - 2:
            assert row_of[sentence[0]] == row_of[sentence[-1]]


@pytest.mark.parametrize("name", ["documents", "document_per_row"])
@given(shapes=SHAPES, length=st.integers(8, 40))
def test_a_segment_is_one_wrapped_piece_of_one_document(name, shapes, length):
    documents = numbered(shapes)
    document_of = {token: n for n, document in enumerate(documents) for token in chain(*document)}
    rows = list(PACKINGS[name](documents, length))
    for piece in segments(rows):
        assert piece[0] == CLS and piece[-1] == SEP and ordinary(piece) == piece[1:-1]
        assert len({document_of[token] for token in piece[1:-1]}) == 1
    for document in documents:  # a document that fits is not cut
        tokens = list(chain(*document))
        if 0 < len(tokens) <= length - 2:
            assert [CLS, *tokens, SEP] in list(segments(rows))
    if name == "document_per_row":
        assert all(len(lengths) == 1 for _, lengths in rows)


def test_full_sentences_example():
    documents = [[[10, 11], [12]], [[13, 14, 15]], [[16, 17, 18, 19, 20, 21, 22, 23]]]
    assert [row for row, _ in pack_full_sentences(documents, 8)] == [
        [CLS, 10, 11, SEP, 12, SEP],  # two more [SEP] and three words do not fit
        [CLS, 13, 14, 15, SEP],
        [CLS, 16, 17, 18, 19, 20, 21, SEP],
        [CLS, 22, 23, SEP],
    ]
    assert [row for row, _ in pack_full_sentences(documents[:2], 11)] == [
        [CLS, 10, 11, SEP, 12, SEP, SEP, 13, 14, 15, SEP]
    ]


def test_short_documents_share_rows_and_fill_them():
    documents = numbered([[n % 13 + 1] for n in range(2000)])
    rows = list(pack_documents(documents, 32))
    assert sum(len(tokens) for tokens, _ in rows) / (32 * len(rows)) > 0.95


def test_rows_are_given_out_while_documents_come():
    """Memory is bounded: no more than OPEN_ROWS rows wait."""
    taken = 0

    def documents():
        nonlocal taken
        for document in numbered([[20]] * 1000):  # no two fit into one row
            taken += 1
            yield document

    rows = pack_documents(documents(), 32)
    next(rows)
    assert taken == OPEN_ROWS + 1
