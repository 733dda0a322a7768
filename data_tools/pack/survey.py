"""The survey stage: how much there is for each pile, before anything is moved."""

from pathlib import Path

import numpy as np

from data_tools.pack.pile import DECIDES, PileConfig, placed
from data_tools.row_groups import row_groups
from data_tools.stage import Partition, Report, Stage


def survey_partition(partition: Partition[PileConfig], out: Path) -> Report:
    """Writes nothing; the report counts documents and tokens (without BOS) for each pile."""
    piles = len(partition.config.piles)
    documents, tokens = np.zeros(piles, np.int64), np.zeros(piles, np.int64)
    for rows in row_groups(partition.inputs["tokens"], (*DECIDES, "tokens")):
        places = [p if isinstance(p, int) else piles for p in placed(rows, partition.config)]
        pile_N = np.array(places, np.int64)
        documents += np.bincount(pile_N, minlength=piles + 1)[:piles]
        np.add.at(tokens, pile_N[pile_N < piles], rows["tokens"].to_numpy()[pile_N < piles])
    return {"documents": documents.tolist(), "tokens": tokens.tolist()}


SURVEY = Stage("survey", "1", survey_partition)
