"""Documents of any length to rows of one length, in three forms. Pure functions of token ids.

A document is the list of its sentences, each the list of its ids. A row is its tokens and the lengths of the segments
they fall into; attention and positions stay inside a segment. No form loses or reorders a document's tokens.
"""

from collections.abc import Callable, Iterable, Iterator

from posenc_jax.data.tokenizer import CLS, SEP

Document = list[list[int]]
Row = tuple[list[int], list[int]]

OPEN_ROWS = 64  # rows that wait for a piece which fits; more fill the rows better and search longer


def pack_full_sentences(documents: Iterable[Document], length: int) -> Iterator[Row]:
    """RoBERTa's FULL-SENTENCES (Liu et al. 2019, section 4.2): [CLS], then whole sentences, each ended by [SEP].

    Rows run on across documents, with one more [SEP] between them, and are one segment. Only a sentence longer than a
    row is cut.
    """
    row = [CLS]
    for document in documents:
        between = len(row) > 1
        for piece in (piece for sentence in document for piece in _pieces(sentence, length - 2)):
            if len(row) + between + len(piece) + 1 > length:
                yield row, [len(row)]
                row, between = [CLS], False
            if between:
                row.append(SEP)
                between = False
            row += piece
            row.append(SEP)
    if len(row) > 1:
        yield row, [len(row)]


def pack_documents(documents: Iterable[Document], length: int) -> Iterator[Row]:
    """[CLS] piece [SEP], as many pieces a row as fit, each its own segment; longer documents make several pieces.

    A piece goes to the fullest of the last `OPEN_ROWS` rows that has room for it, else to a new row.
    """
    open_rows: list[Row] = []
    for piece in _document_pieces(documents, length):
        fitting = [row for row in open_rows if len(row[0]) + len(piece) + 2 <= length]
        if fitting:
            row = max(fitting, key=lambda row: len(row[0]))
        else:
            row = ([], [])
            open_rows.append(row)
        row[0].extend((CLS, *piece, SEP))
        row[1].append(len(piece) + 2)
        if len(row[0]) > length - 3 or len(open_rows) > OPEN_ROWS:
            fullest = max(open_rows, key=lambda row: len(row[0]))
            open_rows.remove(fullest)
            yield fullest
    yield from open_rows


def pack_document_per_row(documents: Iterable[Document], length: int) -> Iterator[Row]:
    """[CLS] document [SEP] and padding; a longer document is cut into several rows."""
    for piece in _document_pieces(documents, length):
        yield [CLS, *piece, SEP], [len(piece) + 2]


PACKINGS: dict[str, Callable[[Iterable[Document], int], Iterator[Row]]] = {
    "full_sentences": pack_full_sentences,
    "documents": pack_documents,
    "document_per_row": pack_document_per_row,
}


def _document_pieces(documents: Iterable[Document], length: int) -> Iterator[list[int]]:
    for document in documents:
        yield from _pieces([token for sentence in document for token in sentence], length - 2)


def _pieces(tokens: list[int], most: int) -> Iterator[list[int]]:
    if len(tokens) <= most:
        if tokens:
            yield tokens
        return
    for start in range(0, len(tokens), most):
        yield tokens[start : start + most]
