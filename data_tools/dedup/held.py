"""Which of many documents are held out, from their facts."""

import numpy as np

from data_tools.hashes import hashes
from data_tools.heldout import HeldoutConfig


def places(config: HeldoutConfig, fact_N: np.ndarray) -> np.ndarray:
    """uint64[N]: where the text of each document, as it was read, stands among all texts."""
    return np.array([config.place(h) for h in hashes(fact_N["read"])], np.uint64)


def held(config: HeldoutConfig, place_N: np.ndarray, type_N: np.ndarray) -> np.ndarray:
    """bool[N]: which of these are held out."""
    limits = {name: config.limit_of(name) for name in set(type_N.tolist())}
    return place_N < np.array([limits[name] for name in type_N], np.uint64)
