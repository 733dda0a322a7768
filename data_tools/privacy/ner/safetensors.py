"""Reads the safetensors format: the length of a JSON header, the header, the arrays."""

import json
import math
from pathlib import Path

import numpy as np

from data_tools.document import DataError

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""bfloat16 is the upper half of a float32."""


def read(path: Path) -> dict[str, np.ndarray]:
    """Name -> float32 array; raises `DataError` for a damaged file. Integer tensors are left out:
    BERT keeps none but the numbers of its positions."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
        arrays = {}
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"] not in _TYPES:
                continue
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            dtype = np.dtype(_TYPES[entry["dtype"]])
            if end > len(data) or end - start != dtype.itemsize * math.prod(entry["shape"]):
                raise ValueError(f"{name} does not fit its place")
            array = np.frombuffer(data[start:end], dtype).reshape(entry["shape"])
            if entry["dtype"] == "BF16":
                array = (array.astype(np.uint32) << 16).view(np.float32)
            arrays[name] = array.astype(np.float32)
    except (ValueError, KeyError, TypeError) as e:
        raise DataError(f"{path}: is not a whole safetensors file: {e}") from None
    return arrays
