"""A Llama-like model of 7.5 billion parameters, trained on 20 tokens a parameter.

jaxlm plan --config=configs/lm_7b.py --target=h100:4x8
jaxlm train --config=configs/lm_7b.py:h100:4x8 --workdir=runs/lm_7b

Batch: 4M tokens, by accumulation. Corpus: a vocabulary of at most 65,536,
so that a token takes two bytes. `jaxlm train` runs on each host; its help says how they meet.

Tokens, and days and cost as planned (docs/plans.md):
  v5p:2x4x4   150B: 5.8 to 7.2 days, $18,693 to 23,189, spot $3,721 to 4,616
  v5e:4x8     150B: 16.3 to 23.2 days, $15,038 to 21,360, spot $3,070 to 4,361
  v6e:4x8     150B: 2.9 to 6.6 days, $6,008 to 13,732, spot $1,211 to 2,767
  7x:2x2x4    150B: 4.9 to 7.7 days, unknown, spot unknown
  a100:4x8    150B: 8.4 to 11.2 days, $17,515 to 23,144, spot $7,823 to 10,338
  h100:4x8    150B: 2.7 to 4.3 days, $12,596 to 20,506, spot $5,042 to 8,209
  h200:4x8    150B: 2.7 to 3.7 days, $12,903 to 17,693, spot $5,353 to 7,341
  b200:4x8    150B: 1.2 to 1.8 days, $7,736 to 11,672, spot $3,836 to 5,787
"""

from ml_collections import ConfigDict

from jaxlm import llama
from jaxlm.llama import Layout

TARGETS = {
    "v5p:2x4x4": Layout(mesh=(2, 16, 1), rows=4, remat="dots"),
    "v5e:4x8": Layout(mesh=(2, 16, 1), rows=1, remat="attention"),
    "v6e:4x8": Layout(mesh=(2, 16, 1), rows=1, remat="dots"),
    "7x:2x2x4": Layout(mesh=(2, 16, 1), rows=4, remat="dots"),
    "a100:4x8": Layout(mesh=(4, 8, 1), rows=2, remat="dots"),
    "h100:4x8": Layout(mesh=(4, 8, 1), rows=2, remat="dots"),
    "h200:4x8": Layout(mesh=(4, 8, 1), rows=4, remat="dots"),
    "b200:4x8": Layout(mesh=(4, 8, 1), rows=4, remat="dots"),
}
"""Target -> layout; the first is the default."""


def get_config(target: str = "v5p:2x4x4") -> ConfigDict:
    """See `jaxlm.config.Config` for the fields."""
    c = llama.shape(
        vocab_size=65_536,
        d_model=4096,
        n_layers=32,
        n_heads=32,
        n_kv_heads=8,
        d_ff=14336,
    )
    llama.pretrain(c, "lm_7b", batch_tokens=2**22, lr=3e-4)
    return llama.lay_out(c, TARGETS[target])
