"""A Llama-like model of 13 billion parameters, trained on 20 tokens a parameter.

jaxlm plan --config=configs/lm_13b.py --target=h100:8x8
jaxlm train --config=configs/lm_13b.py:h100:8x8 --workdir=runs/lm_13b

Batch: 4M tokens, by accumulation. Corpus: a vocabulary of at most 65,536,
so that a token takes two bytes. `jaxlm train` runs on each host; its help says how they meet.

Tokens, and days and cost as planned (docs/plans.md):
  v5p:4x4x4   265B: 9.0 to 11.4 days, $57,947 to 73,557, spot $11,534 to 14,641
  v5e:8x8     265B: 25.4 to 35.5 days, $46,853 to 65,525, spot $9,566 to 13,378
  v6e:8x8     265B: 4.5 to 9.9 days, $18,626 to 40,977, spot $3,753 to 8,256
  7x:2x4x4    265B: 8.9 to 13.9 days, unknown, spot unknown
  a100:8x8    265B: 13.1 to 19.2 days, $54,352 to 79,576, spot $24,277 to 35,544
  h100:8x8    265B: 4.1 to 7.9 days, $39,087 to 74,984, spot $15,648 to 30,018
  h200:8x8    265B: 4.1 to 6.2 days, $40,040 to 60,095, spot $16,613 to 24,934
  b200:8x8    265B: 1.8 to 2.8 days, $24,006 to 36,411, spot $11,903 to 18,053
"""

from ml_collections import ConfigDict

from jaxlm import llama
from jaxlm.llama import Layout

TARGETS = {
    "v5p:4x4x4": Layout(mesh=(2, 32, 1), rows=2, remat="dots"),
    "v5e:8x8": Layout(mesh=(2, 32, 1), rows=1, remat="attention"),
    "v6e:8x8": Layout(mesh=(2, 32, 1), rows=1, remat="dots"),
    "7x:2x4x4": Layout(mesh=(2, 32, 1), rows=2, remat="dots"),
    "a100:8x8": Layout(mesh=(8, 8, 1), rows=1, remat="dots"),
    "h100:8x8": Layout(mesh=(8, 8, 1), rows=1, remat="dots"),
    "h200:8x8": Layout(mesh=(8, 8, 1), rows=2, remat="dots"),
    "b200:8x8": Layout(mesh=(8, 8, 1), rows=4, remat="dots"),
}
"""Target -> layout; the first is the default."""


def get_config(target: str = "v5p:4x4x4") -> ConfigDict:
    """See `jaxlm.config.Config` for the fields."""
    c = llama.shape(
        vocab_size=65_536,
        d_model=5120,
        n_layers=40,
        n_heads=40,
        n_kv_heads=8,
        d_ff=16384,
    )
    llama.pretrain(c, "lm_13b", batch_tokens=2**22, lr=3e-4)
    return llama.lay_out(c, TARGETS[target])
