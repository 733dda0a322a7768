"""The forward pass of BERT for token classification, in numpy.

T tokens, D hidden size, H heads, K size of a head, L labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from data_tools.document import DataError


@dataclass(frozen=True)
class BertConfig:
    """What of config.json the computation depends on."""

    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    layer_norm_eps: float = 1e-12


class Bert:
    """BertForTokenClassification (Hugging Face names), without dropout."""

    def __init__(self, config: BertConfig, weights: Mapping[str, np.ndarray]):
        self.config = config
        self._weights = weights

    def __call__(self, ids_T: Sequence[int]) -> np.ndarray:
        """float32[T, L]: a score for each label of each token, [CLS] and [SEP] among them."""
        embeddings = "bert.embeddings"
        x_TD = (
            self._get(f"{embeddings}.word_embeddings.weight")[np.asarray(ids_T)]
            + self._get(f"{embeddings}.position_embeddings.weight")[: len(ids_T)]
            + self._get(f"{embeddings}.token_type_embeddings.weight")[0]
        )
        x_TD = self._norm(f"{embeddings}.LayerNorm", x_TD)
        for n in range(self.config.num_hidden_layers):
            layer = f"bert.encoder.layer.{n}"
            mixed_TD = self._linear(f"{layer}.attention.output.dense", self._attend(layer, x_TD))
            x_TD = self._norm(f"{layer}.attention.output.LayerNorm", x_TD + mixed_TD)
            wide_TF = _gelu(self._linear(f"{layer}.intermediate.dense", x_TD))
            narrow_TD = self._linear(f"{layer}.output.dense", wide_TF)
            x_TD = self._norm(f"{layer}.output.LayerNorm", x_TD + narrow_TD)
        return self._linear("classifier", x_TD)

    def _attend(self, layer: str, x_TD: np.ndarray) -> np.ndarray:
        heads = self.config.num_attention_heads
        q_HTK, k_HTK, v_HTK = (
            self._linear(f"{layer}.attention.self.{name}", x_TD)
            .reshape(len(x_TD), heads, -1)
            .swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        score_HTT = q_HTK @ k_HTK.swapaxes(1, 2) / np.float32(np.sqrt(q_HTK.shape[-1]))
        weight_HTT = np.exp(score_HTT - score_HTT.max(-1, keepdims=True))
        weight_HTT /= weight_HTT.sum(-1, keepdims=True)
        return (weight_HTT @ v_HTK).swapaxes(0, 1).reshape(x_TD.shape)

    def _linear(self, name: str, x_TD: np.ndarray) -> np.ndarray:
        return x_TD @ self._get(f"{name}.weight").T + self._get(f"{name}.bias")

    def _norm(self, name: str, x_TD: np.ndarray) -> np.ndarray:
        centred_TD = x_TD - x_TD.mean(-1, keepdims=True)
        variance_T1 = np.square(centred_TD).mean(-1, keepdims=True)
        scaled_TD = centred_TD / np.sqrt(variance_T1 + np.float32(self.config.layer_norm_eps))
        return scaled_TD * self._get(f"{name}.weight") + self._get(f"{name}.bias")

    def _get(self, name: str) -> np.ndarray:
        try:
            return self._weights[name]
        except KeyError:
            raise DataError(
                f"{name}: no such tensor in the checkpoint; it must be a BertForTokenClassification"
            ) from None


def _gelu(x: np.ndarray) -> np.ndarray:
    return x * np.float32(0.5) * (1 + erf(x * np.float32(2**-0.5)))
