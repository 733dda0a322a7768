"""Dialogues: the common shapes, and what the others are called."""

import json

import pytest

from data_tools.read.json_array import split_array
from data_tools.read.record import Bad, Record
from tests.data_tools.raw import bad, read_bytes, texts

TEXT = "user: 你好\nassistant: 好"


@pytest.mark.parametrize(
    "shape",
    [
        {"conversations": [{"from": "human", "value": "你好"}, {"from": "gpt", "value": "好"}]},
        {"messages": [{"role": "user", "content": "你好"}, {"role": "assistant", "content": "好"}]},
        {"conversation": [{"human": "你好", "assistant": "好"}]},
        {"dialog": ["你好", "好"]},
        [["你好", "好"]],
        ["你好", "好"],
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_shapes(tmp_path, shape, name):
    text = json.dumps([shape] if name == "a.json" else shape, ensure_ascii=False)
    (found,) = read_bytes(tmp_path / name, text.encode(), format="dialogue")
    assert isinstance(found, Record) and found.text == TEXT
    assert found.place == ("element 1" if name == "a.json" else "line 1")


def test_other_speakers_keep_their_names_and_fields_are_kept(tmp_path):
    value = {
        "id": 7,
        "turns": [
            {"role": "system", "content": "s"},
            {"role": "医生", "content": "哪里不舒服？"},
            {"role": "患者", "content": "头疼\n两天"},
        ],
    }
    (found,) = read_bytes(
        tmp_path / "a.jsonl", json.dumps(value).encode(), format="dialogue", meta_fields=("id",)
    )
    assert isinstance(found, Record) and found.meta == {"id": "7"}
    assert found.text == "system: s\n医生: 哪里不舒服？\n患者: 头疼\n两天"


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        ({"prompt": "a"}, "no list of turns", "fields prompt"),
        ({"messages": "a"}, "turns are not a list", "str"),
        ({"messages": []}, "turns are not a list", "list of 0"),
        (7, "turns are not a list", "int"),
        ([["a", "b", "c"]], "unknown shape of a turn", "list of 3"),
        ([["a", None]], "a turn without a speaker and words", "list of 2"),
        ([{"role": "user"}], "a turn without a speaker and words", "fields role"),
        ([{"x": "y"}], "a turn without a speaker and words", "fields x"),
    ],
)
def test_unknown_shapes_are_bad_with_what_was_found(tmp_path, value, reason, detail):
    line = json.dumps(value).encode() + b'\n["a"]'
    found = read_bytes(tmp_path / "a.jsonl", line, format="dialogue")
    assert found[0] == Bad("line 1", reason, detail) and texts(found) == ["user: a"]


def test_a_json_file_with_an_object_a_line(tmp_path):
    line = b'{"dialog": ["a"]}\n'
    assert texts(read_bytes(tmp_path / "a.json", line * 3)) == ["user: a"] * 3


def test_a_broken_element_does_not_hide_the_others(tmp_path):
    data = b'[["a"], {broken}, ["b, ]\\""],\n ["c"], , ["d"]]'
    found = read_bytes(tmp_path / "a.json", data)
    assert texts(found) == ["user: a", 'user: b, ]"', "user: c", "user: d"]
    assert bad(found) == [("element 2", "broken JSON"), ("element 5", "broken JSON")]
    assert [f.offset for f in found if isinstance(f, Record)] == [0, 2, 3, 5]
    assert bad(read_bytes(tmp_path / "a.json", data[:-1]))[-1] == (
        "element 6",
        "JSON array without an end",
    )
    assert bad(read_bytes(tmp_path / "a.json", b" [ ] ")) == [("whole file", "empty file")]


@pytest.mark.parametrize("encoding", ["gb18030", "auto"])
def test_arrays_in_another_encoding(tmp_path, encoding):
    words = "今天天气很好，我们去公园散步。" * 20
    data = json.dumps([[words], ["好"]], ensure_ascii=False).encode("gb18030")
    found = read_bytes(tmp_path / "a.json", data, encoding=encoding)
    assert texts(found) == [f"user: {words}", "user: 好"]
    found = read_bytes(tmp_path / "a.json", data)
    assert bad(found) == [("element 1", "not utf-8")]


@pytest.mark.parametrize("size", range(1, 12))
def test_an_array_in_pieces_of_any_size(size):
    text = r' [ {"a": "\\\" ] , [" , "b": [1, {}]} , "x\\" , [[], "}"], 5 ] tail'
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    values = [json.loads(e) for e in split_array(iter(pieces), 100) if isinstance(e, str)]
    assert values == [*json.loads(text.removesuffix("tail"))]


def test_an_element_that_is_too_long_is_passed_over():
    found = list(split_array(iter(["[1, ", '"' + "x" * 50, "x" * 50 + '"', ", 3]"]), 60))
    detail = "103 bytes, max_record_bytes=60"
    assert found == ["1", Bad("element 2", "record too long", detail), " 3"]
