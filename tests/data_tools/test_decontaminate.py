"""Documents that hold text of an evaluation set go, with the set, its text and the run named."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_tools.decontaminate import contaminated
from data_tools.decontaminate.config import DecontaminateConfig, EvaluationConfig
from data_tools.decontaminate.evaluation import set_inputs, spelled_runs
from data_tools.document import DataError, Document
from data_tools.drops import VERDICTS
from data_tools.engines import InProcess
from data_tools.stage import StageResult
from jaxlm.schema import ConfigError, parse
from tests.data_tools.dedup.material import chinese, document, english, put, runner

ENGLISH = (
    "A train leaves the station at noon and travels sixty miles an hour toward the coast. "
    "How far has it gone when the clock strikes three?"
)
CHINESE = "下列关于光合作用的说法中，正确的是哪一项？光反应在叶绿体的类囊体薄膜上进行。"
CODE = '''def has_close_elements(numbers: List[float], threshold: float) -> bool:
    """Check if any two numbers in the list are closer than the threshold."""
    for i, a in enumerate(numbers):
        return any(abs(a - b) < threshold for b in numbers[i + 1:])
'''
CONFIG = DecontaminateConfig(
    sets=(
        EvaluationConfig("gsm", "gsm.jsonl", fields=("question", "answer")),
        EvaluationConfig("exam", "exam.txt", "txt"),
        EvaluationConfig("eval", "eval.jsonl", fields=("prompt",)),
    )
)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """Three sets; `gsm` has its text in the second line."""
    other = " ".join(english("other", 40))
    rows = [{"question": other, "answer": "41"}, {"question": ENGLISH, "answer": "180"}]
    (tmp_path / "gsm.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "exam.txt").write_text(CHINESE + "\n\n短\n", encoding="utf-8")
    (tmp_path / "eval.jsonl").write_text(json.dumps({"prompt": CODE}))
    return tmp_path


def details(
    workdir: Path, documents: Sequence[Document], config: DecontaminateConfig = CONFIG, cut: int = 1
) -> dict[bytes, str]:
    """Id -> detail of its verdict."""
    return verdicts(workdir, documents, config, cut)[0]


def verdicts(
    workdir: Path, documents: Sequence[Document], config: DecontaminateConfig, cut: int = 1
) -> tuple[dict[bytes, str], dict[str, StageResult]]:
    """(Id -> detail, what each stage said)."""
    names = [f"p-{i:05d}" for i in range(cut)]
    inputs = [(n, put(workdir / f"{cut}" / n, documents[i::cut])) for i, n in enumerate(names)]
    results: dict[str, StageResult] = {}
    run = runner(workdir / f"stages{cut}", InProcess(), results)
    last = contaminated.find(run, inputs, config, set_inputs(config, workdir))
    found = {}
    for name in names:
        for file in last.about(name):
            table = pq.read_table(file.path, schema=VERDICTS)
            assert set(table["rule"].to_pylist()) == {"contaminated"}
            found |= zip(table["id"].to_pylist(), table["detail"].to_pylist(), strict=True)
    return found, results


def test_text_of_a_set_is_found_and_named(workdir):
    before, after = "".join(chinese(1, 300)), " ".join(english(2, 100))
    documents = [
        document(f"{after}\n{ENGLISH}\n{after}", 0),
        document(f"{before}{CHINESE}{before}", 1),
        document(f"import os\n\n{CODE}\n\nprint(os)\n", 2, "code"),
        document(before, 3),
        document(after, 4),
    ]
    found = details(workdir, documents)
    assert found == {
        documents[0].id: "gsm line 2 question has 14 of its 14 runs here, the first: "
        "a train leaves the station at noon and travels sixty miles an hour",
        documents[1].id: "exam line 1 has 16 of its 16 runs here, the first: "
        "下列关于光合作用的说法中正确的是哪一项光",
        documents[2].id: found[documents[2].id],
    }
    assert found[documents[2].id].startswith("eval line 1 prompt has ")
    assert (
        "the first: def has close elements numbers list float threshold" in found[documents[2].id]
    )


@pytest.mark.parametrize(
    "edited",
    [
        ENGLISH.upper(),
        ENGLISH.replace(" ", "\n\n  "),
        ENGLISH.replace(".", "").replace("?", "!!!"),
        "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in ENGLISH),
        CHINESE.replace("，", ",").replace("？", "\n").replace("。", ""),
        " ".join(CHINESE),
        CODE.replace("    ", "\t").replace("(", "( "),
    ],
)
def test_trivial_edits_hide_nothing(workdir, edited):
    assert len(details(workdir, [document(edited, 0)])) == 1


def test_less_than_a_run_is_nothing(workdir):
    words = ENGLISH.split()
    shared, characters = " ".join(words[:12]), CHINESE[:20]
    documents = [
        document(f"{shared} and so on, as it always has been since then, day by day", 0),
        document(f"{characters}，我们今天不谈这个，只谈天气和收成，还有村里的人和他们的事。", 1),
    ]
    assert details(workdir, documents) == {}
    assert len(details(workdir, [document(" ".join(words[:13]), 0)], cut=2)) == 1


def test_partitions_change_nothing(workdir):
    texts = [f"{i} {ENGLISH if i % 3 else CHINESE} {i}" for i in range(9)]
    documents = [document(text, i) for i, text in enumerate(texts)]
    found = details(workdir, documents)
    assert len(found) == 9 and details(workdir, documents, cut=4) == found


def test_least_and_share(workdir):
    half = document(" ".join(ENGLISH.split()[:18]), 0)  # 6 of 14 runs
    assert "6 of its 14 runs" in details(workdir, [half])[half.id]
    for cut, (least, share, gone) in enumerate(
        [(6, 0.0, 1), (7, 0.0, 0), (1, 0.42, 1), (1, 0.43, 0)], 2
    ):
        config = replace(CONFIG, least=least, share=share)
        assert len(details(workdir, [half], config, cut)) == gone
    # a text with fewer runs than `least` must be there whole
    whole = document(ENGLISH, 1)
    assert len(details(workdir, [whole], replace(CONFIG, least=99), 6)) == 1


def test_hashes_alone_drop_nothing(workdir, monkeypatch):
    """Every run has the same hash, so everything is a hit; the texts still decide."""
    real = contaminated.grams

    def same(*arguments):
        hash_U, inside_U = real(*arguments)
        return hash_U * 0, inside_U

    monkeypatch.setattr(contaminated, "grams", same)
    monkeypatch.setattr("data_tools.decontaminate.evaluation.grams", same)
    documents = [document(" ".join(english(5, 100)), 0), document(ENGLISH, 1)]
    assert list(details(workdir, documents, replace(CONFIG, least=1))) == [documents[1].id]


def test_the_report_counts_what_is_found_and_what_cannot_be(workdir):
    _, results = verdicts(workdir, [document(ENGLISH, i) for i in range(3)], CONFIG)
    said = {c.partition: c.report for c in results["evaluation_runs"].commits}
    assert said["gsm"] == {"texts": 4, "too_short": 2, "runs": 28 + 14}
    assert said["exam"]["texts"] == 2 and said["exam"]["too_short"] == 1
    assert [c.report for c in results["contaminated"].commits] == [{"contaminated": {"gsm": 3}}]


def test_without_sets_nothing_runs(workdir):
    assert (
        verdicts(workdir, [document(ENGLISH, 0)], DecontaminateConfig())[1]["contaminated"].commits
        == ()
    )


@pytest.mark.parametrize(("text", "count"), [("", 0), ("yes\n不是\n", 2)])
def test_a_set_that_would_protect_nothing_is_an_error(workdir, text, count):
    config = DecontaminateConfig((EvaluationConfig("tiny", "tiny.txt", "txt"),))
    (workdir / "tiny.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        details(workdir, [document(ENGLISH + " yes no", 0)], config)
    assert (
        f"evaluation set tiny: none of its {count} texts has a run of words=13 or characters=20, "
        "so that it would protect nothing; lower words or characters, or take the set out"
    ) in str(error.value)
    (workdir / "tiny.txt").write_text("yes indeed\n")
    documents = [document("they said: yes, indeed", 0)]
    assert len(details(workdir, documents, replace(config, words=2), cut=2)) == 1


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"evaluation set gsm: no file .*gsm\.jsonl; correct its"):
        set_inputs(CONFIG, tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"question": ', "line 2: broken JSON .*mend the line"),
        (b'{"question": "x"}', "line 2: no text in field 'answer'; correct the set's fields"),
        (b"[]", "no text in field 'question'"),
        (b'"\xff"', "line 2: is not UTF-8 .*convert the file"),
    ],
)
def test_a_line_that_cannot_be_read_is_an_error(workdir, line, message):
    (workdir / "gsm.jsonl").write_bytes(b'{"question": "a", "answer": "b"}\n' + line + b"\n")
    with pytest.raises(DataError, match=message):
        details(workdir, [])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"words": 0}, "words=0 must be at least 1"),
        ({"share": 1.5}, "share=1.5 must be between 0 and 1"),
        ({"sets": ({"name": "a"},)}, "path='' must not be empty; name the file of the set"),
        ({"sets": ({"path": "a"},)}, "name='': use letters, digits, underscores and dashes"),
        ({"sets": ({"name": "../a", "path": "a"},)}, "name='../a': use letters, digits"),
        ({"sets": ({"name": "a", "path": "a", "fields": ()},)}, "name at least one field"),
        ({"sets": ({"name": "a", "path": "a"},) * 2}, "two are named 'a'; give each a name"),
    ],
)
def test_the_config_is_checked(values, message):
    with pytest.raises(ConfigError) as error:
        parse(DecontaminateConfig, values)
    assert message in str(error.value)


def test_spelled_runs_tell_runs_apart():
    assert spelled_runs("ab c 我 d", 2, 3) == ["ab c", "c我"]
    assert spelled_runs("ab c 我 d 你", 2, 3) == ["ab c", "c我", "我d你", "d你"]
