"""MinHash signatures, bit for bit those of datasketch 2.0, and their bands.

Its scheme is `affine32`.

S: shingles of all texts, T: texts, K: permutations, B: bands of R rows, K = B * R.
"""

import functools

import numpy as np

from data_tools.dedup.units import mix

_BAND = 0xA24BAED4963EE407
"""Base, odd, of the polynomial hash of a band."""


@functools.cache
def permutations(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(a_K odd, b_K), uint32: permutation k of 32-bit values is h -> a_k * h + b_k mod 2^32."""
    generator = np.random.RandomState(seed)
    a_K = generator.randint(0, 1 << 31, count, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return a_K, generator.randint(0, 1 << 32, count, dtype=np.uint32)


def signatures(hash_S: np.ndarray, bounds: np.ndarray, count: int, seed: int) -> np.ndarray:
    """uint32[K, T]: the least value of each permutation over each text's shingles.

    `hash_S` is uint32; text t has those from bounds[t] to bounds[t + 1], at least one.
    """
    mixed_S = _mix32(hash_S)
    permuted_S = np.empty_like(mixed_S)
    result_KT = np.empty((count, len(bounds) - 1), np.uint32)
    for a, b, least_T in zip(*permutations(count, seed), result_KT, strict=True):
        np.multiply(mixed_S, a, out=permuted_S)
        np.add(permuted_S, b, out=permuted_S)
        np.minimum.reduceat(permuted_S, bounds[:-1], out=least_T)
    return result_KT


def band_keys(signature_KT: np.ndarray, bands: int) -> np.ndarray:
    """uint64[B, T]: equal where two texts agree in all rows of one band."""
    rows = len(signature_KT) // bands
    keys_BT = np.empty((bands, signature_KT.shape[1]), np.uint64)
    for band, key_T in enumerate(keys_BT):
        key_T[:] = band
        for row_T in signature_KT[band * rows : (band + 1) * rows]:
            key_T *= np.uint64(_BAND)
            key_T += row_T
    return mix(keys_BT)


def _mix32(value: np.ndarray) -> np.ndarray:
    """MurmurHash3's 32-bit finalizer."""
    value = value ^ (value >> np.uint32(16))
    value *= np.uint32(0x85EBCA6B)
    value ^= value >> np.uint32(13)
    value *= np.uint32(0xC2B2AE35)
    value ^= value >> np.uint32(16)
    return value
