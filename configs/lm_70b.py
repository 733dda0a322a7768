"""A Llama-like model of 70 billion parameters, trained on 20 tokens a parameter.

jaxlm plan --config=configs/lm_70b.py --target=h100:32x8
jaxlm train --config=configs/lm_70b.py:h100:32x8 --workdir=runs/lm_70b

Batch: 4M tokens, by accumulation. Corpus: a vocabulary of at most 128,000.
`jaxlm train` runs on each host; its help says how they meet.

Tokens, and days and cost as planned (docs/plans.md):
  v5p:4x8x8   1,411B: 61.7 to 81.8 days, $1,592,964 to 2,109,860, spot $317,076 to 419,963
  v5e:16x16   1,411B: 176.0 to 237.3 days, $1,297,557 to 1,749,209, spot $264,918 to 357,130
  v6e:16x16   1,411B: 30.9 to 72.3 days, $512,024 to 1,198,757, spot $103,163 to 241,527
  7x:4x4x8    1,411B: 82.1 to 128.1 days, unknown, spot unknown
  a100:32x8   1,411B: 110.7 to 169.7 days, $1,835,722 to 2,815,557, spot $819,956 to 1,257,615
  h100:32x8   1,411B: 34.9 to 70.2 days, $1,320,169 to 2,656,591, spot $528,496 to 1,063,500
  h200:32x8   1,411B: 28.5 to 66.0 days, $1,104,175 to 2,556,719, spot $458,132 to 1,060,805
  b200:32x8   1,411B: 12.5 to 32.1 days, $662,011 to 1,694,019, spot $328,234 to 839,918
"""

from ml_collections import ConfigDict

from jaxlm import llama
from jaxlm.llama import Layout

TARGETS = {
    "v5p:4x8x8": Layout(mesh=(2, 128, 1), rows=1, remat="dots"),
    "v5e:16x16": Layout(mesh=(1, 64, 4), rows=2, remat="attention"),
    "v6e:16x16": Layout(mesh=(2, 32, 4), rows=1, remat="dots"),
    "7x:4x4x8": Layout(mesh=(2, 128, 1), rows=1, remat="dots"),
    "a100:32x8": Layout(mesh=(1, 32, 8), rows=16, remat="attention"),
    "h100:32x8": Layout(mesh=(1, 32, 8), rows=16, remat="attention"),
    "h200:32x8": Layout(mesh=(1, 32, 8), rows=8, remat="dots"),
    "b200:32x8": Layout(mesh=(1, 32, 8), rows=16, remat="dots"),
}
"""Target -> layout; the first is the default."""


def get_config(target: str = "v5p:4x8x8") -> ConfigDict:
    """See `jaxlm.config.Config` for the fields."""
    c = llama.shape(
        vocab_size=128_000,
        d_model=8192,
        n_layers=80,
        n_heads=64,
        n_kv_heads=8,
        d_ff=28672,
    )
    llama.pretrain(c, "lm_70b", batch_tokens=2**22, lr=1.5e-4)
    return llama.lay_out(c, TARGETS[target])
