"""128-bit hashes as two 64-bit words each, which sort as the hashes do."""

import numpy as np
import pyarrow as pa


def words(column: pa.ChunkedArray) -> np.ndarray:
    """uint64[N, 2] from a column of `binary(16)` without nulls."""
    parts = [
        np.frombuffer(chunk.buffers()[1], ">u8")[2 * chunk.offset :][: 2 * len(chunk)]
        for chunk in column.chunks
        if len(chunk)
    ]
    return np.concatenate([np.empty(0, ">u8"), *parts]).astype(np.uint64).reshape(-1, 2)


def hashes(word_N2: np.ndarray) -> list[bytes]:
    """The 16 bytes of each."""
    return [words.tobytes() for words in word_N2.astype(">u8")]
