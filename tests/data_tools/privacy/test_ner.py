"""Models of names: BERT against transformers, the CRF against all paths, jiagu as it is."""

import itertools
import json

import numpy as np
import pytest

from data_tools.document import DataError
from data_tools.privacy.ner import NER, bert_crf, load
from data_tools.privacy.ner.bert import Bert, BertConfig
from data_tools.privacy.ner.bert_crf import windowed
from data_tools.privacy.ner.crf import Crf
from data_tools.privacy.ner.labels import spans
from data_tools.privacy.ner.safetensors import read
from data_tools.privacy.ner.wordpiece import WordPiece
from data_tools.privacy.span import Span
from tests.data_tools.privacy import tiny_bert

GOLDEN = json.loads(tiny_bert.GOLDEN.read_text(encoding="utf-8"))
"""From transformers; if TEXTS or the model change, run tiny_bert.py again."""
VOCABULARY = {piece: n for n, piece in enumerate(tiny_bert.VOCABULARY)}


@pytest.mark.parametrize("case", ["lower", "cased"])
@pytest.mark.parametrize("n", range(len(tiny_bert.TEXTS)))
def test_tokens_and_their_places_are_those_of_transformers(case, n):
    tokens = WordPiece(VOCABULARY, case == "lower")(tiny_bert.TEXTS[n])
    expected = GOLDEN[case][n]
    assert [token.id for token in tokens] == expected["ids"][1:-1]
    assert [[token.start, token.end] for token in tokens] == expected["offsets"][1:-1]


def test_scores_are_those_of_transformers():
    config = BertConfig(tiny_bert.LAYERS, tiny_bert.HEADS, tiny_bert.POSITIONS)
    model = Bert(config, tiny_bert.weights())
    compared = [entry for entry in GOLDEN["lower"] if entry["scores"]]
    assert len(compared) >= 4
    for entry in compared:
        np.testing.assert_allclose(model(entry["ids"]), entry["scores"], atol=2e-6)


def test_the_crf_finds_the_best_of_all_paths():
    rng = np.random.default_rng(0)
    for length in range(1, 6):
        for _ in range(20):
            crf = Crf(*(rng.normal(size=s).astype(np.float32) for s in (3, 3, (3, 3))))
            emission_TL = rng.normal(size=(length, 3)).astype(np.float32)

            def score(path, crf=crf, emission_TL=emission_TL):
                steps = sum(crf.step_LL[a, b] for a, b in itertools.pairwise(path))
                inside = sum(emission_TL[t, label] for t, label in enumerate(path))
                return crf.start_L[path[0]] + steps + inside + crf.end_L[path[-1]]

            best = max(itertools.product(range(3), repeat=length), key=score)
            assert tuple(crf.decode(emission_TL)) == best


@pytest.mark.parametrize("length", [*range(1, 40), 100])
def test_windows_cover_each_token_once_and_with_context(length):
    size, seen = 8, []

    def score(ids):
        assert 0 < len(ids) <= size
        seen.append(list(ids))
        # a row says which token it is of, and how far it is from the edges of its window
        return np.array([[t, i, len(ids) - 1 - i] for i, t in enumerate(ids)], np.float32)

    rows = windowed(score, list(range(length)), size)
    assert rows[:, 0].tolist() == list(range(length))
    for token, before, after in rows.tolist():
        assert before >= min(1, token) and after >= min(1, length - 1 - token)
    assert sum(map(len, seen)) <= max(length, 1.5 * length)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O B-PER I-PER O", [(1, 3, "person")]),
        ("B-PER B-PER I-PER", [(0, 1, "person"), (1, 3, "person")]),
        ("I-LOC I-LOC", [(0, 2, "place")]),
        ("B-LOC I-ORG", [(0, 1, "place"), (1, 2, "organisation")]),
        ("S-GPE S-GPE", [(0, 1, "place"), (1, 2, "place")]),
        ("B-NAME M-NAME E-NAME S-NAME", [(0, 3, "person"), (3, 4, "person")]),
        ("B-company I-company B-TIME I-TIME", [(0, 2, "organisation")]),
        ("O", []),
    ],
)
def test_labels_become_spans(labels, expected):
    labels = labels.split()
    offsets = [(i, i + 1) for i in range(len(labels))]
    assert list(spans(labels, offsets)) == [Span(*e) for e in expected]


def test_a_checkpoint_is_read_and_decoded_line_by_line(tmp_path):
    tiny_bert.write(tmp_path)
    recognise = load("bert_crf", str(tmp_path))
    assert recognise is not None
    model = Bert(
        BertConfig(tiny_bert.LAYERS, tiny_bert.HEADS, tiny_bert.POSITIONS), tiny_bert.weights()
    )
    w = tiny_bert.weights()
    crf = Crf(*(w[f"crf.{n}"] for n in ("start_transitions", "end_transitions", "transitions")))
    text = "李建国  住\t上海市\n\n  张伟在北京"
    expected = []
    for line in ("李建国  住\t上海市", "张伟在北京"):
        start = text.index(line)
        tokens = WordPiece(VOCABULARY, lower=True)(line)
        scores = model([2, *(t.id for t in tokens), 3])[1:-1]
        labels = [tiny_bert.LABELS[i] for i in crf.decode(scores)]
        places = [(start + t.start, start + t.end) for t in tokens]
        expected += spans(labels, places)
    assert list(recognise(text)) == expected and expected


def test_a_line_longer_than_the_model_is_read_whole(tmp_path):
    tiny_bert.write(tmp_path)
    recognise = load("bert_crf", str(tmp_path))
    assert recognise is not None
    found = list(recognise("张伟在北京大学读书，" * 30))
    assert max(span.end for span in found) > 250
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))


def test_half_precision_is_read(tmp_path):
    values = np.array([1.5, -2.25, 3.0], np.float32)
    half = values.astype("<f2")
    brain = (values.view(np.uint32) >> 16).astype("<u2")
    header = {
        "half": {"dtype": "F16", "shape": [3], "data_offsets": [0, 6]},
        "brain": {"dtype": "BF16", "shape": [3], "data_offsets": [6, 12]},
        "positions": {"dtype": "I64", "shape": [1], "data_offsets": [12, 20]},
    }
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + half.tobytes() + brain.tobytes() + bytes(8)
    (tmp_path / "x").write_bytes(data)
    found = read(tmp_path / "x")
    assert set(found) == {"half", "brain"}
    assert all(array.tolist() == values.tolist() for array in found.values())


class TestBadCheckpoints:
    def test_a_missing_file_is_named(self, tmp_path):
        tiny_bert.write(tmp_path)
        (tmp_path / "vocab.txt").unlink()
        with pytest.raises(DataError, match=r"has no vocab\.txt"):
            bert_crf.inputs(tmp_path)

    def test_a_truncated_file(self, tmp_path):
        tiny_bert.write(tmp_path)
        path = tmp_path / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(DataError, match=r"not a whole safetensors file: crf.transitions"):
            bert_crf.load(tmp_path)

    def test_labels_that_name_nobody(self, tmp_path):
        tiny_bert.write(tmp_path)
        labels = {str(n): f"LABEL_{n}" for n in range(7)}
        config = json.dumps(tiny_bert.CONFIG | {"id2label": labels})
        (tmp_path / "config.json").write_text(config)
        with pytest.raises(DataError, match="names no person, place or organisation"):
            bert_crf.load(tmp_path)

    def test_no_bert(self, tmp_path):
        tiny_bert.write(tmp_path)
        config = {k: v for k, v in tiny_bert.CONFIG.items() if k != "num_hidden_layers"}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(DataError, match=r"must describe a BERT: .*num_hidden_layers"):
            bert_crf.load(tmp_path)

    def test_another_activation(self, tmp_path):
        tiny_bert.write(tmp_path)
        config = json.dumps(tiny_bert.CONFIG | {"hidden_act": "relu"})
        (tmp_path / "config.json").write_text(config)
        with pytest.raises(DataError, match="hidden_act='relu'; only 'gelu'"):
            bert_crf.load(tmp_path)

    @pytest.mark.parametrize("name", ["crf.transitions", "classifier.bias"])
    def test_a_missing_tensor(self, tmp_path, name):
        tiny_bert.write(tmp_path)
        tensors = {k: v for k, v in tiny_bert.weights().items() if k != name}
        (tmp_path / "model.safetensors").write_bytes(tiny_bert.safetensors(tensors))
        with pytest.raises(DataError, match=name):
            recognise = bert_crf.load(tmp_path)
            list(recognise("张伟"))

    def test_identity_follows_the_files(self, tmp_path):
        tiny_bert.write(tmp_path)
        before = {i.name: i.identity for i in bert_crf.inputs(tmp_path)}
        tiny_bert.write(tmp_path, lower=False)
        after = {i.name: i.identity for i in bert_crf.inputs(tmp_path)}
        assert {n for n in after if after[n] != before[n]} == {"tokenizer_config.json"}


def test_jiagu_finds_names_offline():
    model = NER["jiagu"]
    assert model is not None
    (file,) = model.inputs(tiny_bert.GOLDEN)
    assert file.identity == "0.2.3"
    recognise = load("jiagu", "")
    assert recognise is not None
    text = "他的老师是李建国。\n  张伟明在北京大学读书，住在上海市，\t在华为技术有限公司。\n\n12"
    found = [(text[s.start : s.end], s.entity) for s in recognise(text)]
    assert ("李建国", "person") in found and ("张伟明", "person") in found
    assert ("上海市", "place") in found
    assert ("北京大学", "organisation") in found and ("华为技术有限公司", "organisation") in found
