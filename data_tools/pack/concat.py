"""Packing end to end: documents follow each other and are cut every `chunk_tokens`."""

import numpy as np

from data_tools.pack.layout import Layout


def concat(tokens_N: np.ndarray, chunk_tokens: int) -> Layout:
    """The documents (of int64[N] tokens) in their order, padding only at the very end.

    The last id of a chunk is the first of the next: every id but the first is a target once.
    """
    spans_N = tokens_N + 1  # its BOS
    end_N = np.cumsum(spans_N)
    start_N = end_N - spans_N
    stream = int(end_N[-1])
    last_of_chunk_N = (start_N // chunk_tokens + 1) * chunk_tokens
    return Layout(
        document_P=np.arange(len(tokens_N)),
        skip_P=np.zeros(len(tokens_N), np.int64),
        tokens_P=tokens_N,
        start_P=start_N,
        chunks=max(-(-(stream - 1) // chunk_tokens), 1),
        closed=False,
        truncated=int(np.count_nonzero(end_N - 1 > last_of_chunk_N)),
    )
