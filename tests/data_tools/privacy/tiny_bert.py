"""A BERT with a CRF, small and made of random numbers, as files in its own formats.

Run as a script in an environment with torch and transformers, it writes bert_golden.json beside
itself: what they make of `TEXTS`, token by token.

    python tests/data_tools/privacy/tiny_bert.py
"""

import json
import string
import struct
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).with_name("bert_golden.json")

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG")
HAN = "张伟在北京大学读书李建国住上海市人民的"
PIECES = ("un", "want", "##want", "##ed", "run", "##ning", "resume", "Bei", "bei", "##jing", "##s")
VOCABULARY = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *HAN,
    *PIECES,
    *string.ascii_lowercase,
    *(f"##{c}" for c in string.ascii_lowercase),
    *string.digits,
    *(f"##{c}" for c in string.digits),
    *"，。！,.!?-_$()",
)
TEXTS = (
    "张伟在北京大学读书。",
    "UNwanted running, résumé Beijings!",
    "李建国  住\t上海市(2024年) $5_x",
    "北京a\u200bb🙂 ｘ ﬁ e\u0301 İ",
    "z" * 101 + " 人民",
    "的" * 12 + "张伟" * 5,
)
SIZE, LAYERS, HEADS, INNER, POSITIONS = 16, 2, 2, 24, 24

CONFIG = {
    "architectures": ["BertForTokenClassification"],
    "model_type": "bert",
    "hidden_size": SIZE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
    "type_vocab_size": 2,
    "vocab_size": len(VOCABULARY),
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "id2label": {str(i): label for i, label in enumerate(LABELS)},
    "label2id": {label: i for i, label in enumerate(LABELS)},
}


def weights() -> dict[str, np.ndarray]:
    """Every tensor of the checkpoint: float32, from a fixed seed."""
    rng = np.random.Generator(np.random.PCG64(3))
    tensors: dict[str, np.ndarray] = {}

    def draw(name: str, *shape: int) -> None:
        tensors[name] = rng.uniform(-0.7, 0.7, shape).astype(np.float32)

    def linear(name: str, rows: int, columns: int) -> None:
        draw(f"{name}.weight", rows, columns)
        draw(f"{name}.bias", rows)

    def norm(name: str) -> None:
        draw(f"{name}.weight", SIZE)
        draw(f"{name}.bias", SIZE)

    draw("bert.embeddings.word_embeddings.weight", len(VOCABULARY), SIZE)
    draw("bert.embeddings.position_embeddings.weight", POSITIONS, SIZE)
    draw("bert.embeddings.token_type_embeddings.weight", 2, SIZE)
    norm("bert.embeddings.LayerNorm")
    for n in range(LAYERS):
        layer = f"bert.encoder.layer.{n}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", SIZE, SIZE)
        linear(f"{layer}.attention.output.dense", SIZE, SIZE)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", INNER, SIZE)
        linear(f"{layer}.output.dense", SIZE, INNER)
        norm(f"{layer}.output.LayerNorm")
    linear("classifier", len(LABELS), SIZE)
    draw("crf.start_transitions", len(LABELS))
    draw("crf.end_transitions", len(LABELS))
    draw("crf.transitions", len(LABELS), len(LABELS))
    return tensors


def safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    """The format: length of the header, the header, the bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        place = [at, at := at + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": place}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in tensors.values())


def write(directory: Path, lower: bool = True) -> None:
    """The checkpoint's files."""
    (directory / "model.safetensors").write_bytes(safetensors(weights()))
    (directory / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (directory / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    options = json.dumps({"do_lower_case": lower, "tokenizer_class": "BertTokenizer"})
    (directory / "tokenizer_config.json").write_text(options, encoding="utf-8")


def main() -> None:
    """Asks transformers."""
    import tempfile

    import torch  # pyright: ignore[reportMissingImports]
    import transformers  # pyright: ignore[reportMissingImports]

    golden: dict[str, object] = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    for lower in (True, False):
        with tempfile.TemporaryDirectory() as name:
            write(Path(name), lower)
            tokenizer = transformers.BertTokenizerFast.from_pretrained(name, do_lower_case=lower)
            model = transformers.BertForTokenClassification.from_pretrained(
                name, attn_implementation="eager"
            ).eval()
        found = []
        for text in TEXTS:
            seen = tokenizer(text, return_offsets_mapping=True)
            with torch.no_grad():
                # a text that is too long for the model has tokens, and no scores
                short = len(seen["input_ids"]) <= POSITIONS
                ids = torch.tensor([seen["input_ids"]])
                scores = model(ids).logits[0].double().tolist() if short else None
            found.append(
                {"ids": seen["input_ids"], "offsets": seen["offset_mapping"], "scores": scores}
            )
        golden["lower" if lower else "cased"] = found
    GOLDEN.write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
