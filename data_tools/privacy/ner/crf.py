"""A linear-chain conditional random field: the best path through it."""

from typing import NamedTuple

import numpy as np


class Crf(NamedTuple):
    """Scores as pytorch-crf stores them. L labels."""

    start_L: np.ndarray
    end_L: np.ndarray
    step_LL: np.ndarray
    """From the row's label to the column's."""

    def decode(self, emission_TL: np.ndarray) -> list[int]:
        """The labels of the highest-scoring path (Viterbi); of equal ones the lower label."""
        score_L = self.start_L + emission_TL[0]
        back = []
        for emission_L in emission_TL[1:]:
            total_LL = score_L[:, None] + self.step_LL
            back.append(total_LL.argmax(0))
            score_L = total_LL.max(0) + emission_L
        path = [int((score_L + self.end_L).argmax())]
        for best_L in reversed(back):
            path.append(int(best_L[path[-1]]))
        return path[::-1]
