"""Where the documents of a shard lie in its stream: pieces, one after the other."""

from typing import NamedTuple

import numpy as np


class Layout(NamedTuple):
    """P pieces of documents, in the order of the stream.

    A piece is a BOS at `start` and `tokens` tokens after it. What no piece covers is padding.
    """

    document_P: np.ndarray
    """int64[P]: number of the document."""
    skip_P: np.ndarray
    """int64[P]: tokens of the document before the piece."""
    tokens_P: np.ndarray
    """int64[P]"""
    start_P: np.ndarray
    """int64[P]"""
    chunks: int
    closed: bool
    """The last id of the stream is a BOS, so that every chunk ends with one."""
    truncated: int
    """Documents that are not whole in one chunk."""

    def padding(self, chunk_tokens: int) -> int:
        """Ids of the stream that are neither of a piece nor its closing BOS."""
        stream = self.chunks * chunk_tokens + 1
        return stream - int((self.tokens_P + 1).sum()) - self.closed
