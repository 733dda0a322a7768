"""What each detector takes, and what it leaves: one line, one reason."""

import ast
import itertools
import random
from pathlib import Path

import pytest

from bench import lookalikes, privacy, records, values
from data_tools.privacy.claims import claim
from data_tools.privacy.detectors import DETECTORS
from data_tools.privacy.span import ENTITIES, NAMED


def found(text: str) -> list[tuple[str, str]]:
    """(What, entity) in the order of the text."""
    return [(text[s.start : s.end], s.entity) for s in claim(text)]


TAKEN = {
    "resident_id": [
        ("身份证11010519491231002X。", "11010519491231002X"),
        ("(11010519491231002x)", "11010519491231002x"),
        ("110105 19491231 002X", "110105 19491231 002X"),
        ("110105 1949 1231 002X", "110105 1949 1231 002X"),
        ("id_11010519491231002X.jpg", "11010519491231002X"),
        ("１１０１０５１９４９１２３１００２Ｘ", "１１０１０５１９４９１２３１００２Ｘ"),
        ("身份证号：110105491231002", "110105491231002"),
    ],
    "mobile": [
        ("手机13800138000，", "13800138000"),
        ("13800138000/13900139000", "13800138000"),
        ("**13800138000**", "13800138000"),
        ("+86 138-0013-8000", "+86 138-0013-8000"),
        ("138\u200b0013\u200b8000", "138\u200b0013\u200b8000"),
        ("电话１３８００１３８０００", "１３８００１３８０００"),
        ("Phone:13800138000Email", "13800138000"),
        ("https://a.cn/?phone=13800138000", "13800138000"),
        ('{"phone_number": "13800138000"}', "13800138000"),
        ("订单电话：13800138000", "13800138000"),
    ],
    "landline": [
        ("（010）6275-1234转8012", "（010）6275-1234转8012"),
        ("0571-87654321", "0571-87654321"),
        ("+86-10-62751234", "+86-10-62751234"),
        ("传真62751234", "62751234"),
        ("电话：01062751234", "01062751234"),
    ],
    "email": [
        ("邮箱zhang.san@qq.com联系", "zhang.san@qq.com"),
        ("<a.b+c@mail.ustc.edu.cn>", "a.b+c@mail.ustc.edu.cn"),
        ("13800138000@163.com", "13800138000@163.com"),
        ("zhang＠qq.com", "zhang＠qq.com"),
    ],
    "bank_card": [
        ("6222021234567890128", "6222021234567890128"),
        ("6222 0212 3456 7890 128", "6222 0212 3456 7890 128"),
        ("4111 1111 1111 1111", "4111 1111 1111 1111"),
        ("card no. 4111111111111111", "4111111111111111"),
        ("银行卡号：4111111111111111", "4111111111111111"),
    ],
    "passport": [("护照号E12345678", "E12345678"), ("Passport No. EA1234567", "EA1234567")],
    "plate": [
        ("京A12345", "京A12345"),
        ("粤B·D12345", "粤B·D12345"),
        ("沪A1234学", "沪A1234学"),
        ("川A 12345D", "川A 12345D"),
    ],
    "qq": [("QQ：12345678", "12345678"), ("加QQ群123456789", "123456789"), ("qq=54321", "54321")],
    "wechat": [
        ("微信号：zhangsan", "zhangsan"),
        ("加微信zhang_san", "zhang_san"),
        ("微信（wxid_a1b2c3d4e5f6g7）", "wxid_a1b2c3d4e5f6g7"),
        ("VX: abc12345", "abc12345"),
        ("微信：123456789", "123456789"),
    ],
    "ip": [
        ("来自IP8.8.8.8", "8.8.8.8"),
        ("43.17.25.50 - - GET /", "43.17.25.50"),
        ("http://202.108.22.5/", "202.108.22.5"),
        ("2001:da8:20d::1", "2001:da8:20d::1"),
    ],
    "uscc": [("91110000100017643K", "91110000100017643K")],
    "icd10": [
        ("E11.900x001", "E11.900x001"),
        ("出院诊断：高血压 I10", "I10"),
        ("糖尿病E11", "E11"),
        ("patient with G20", "G20"),
    ],
}

LEFT = {
    "a checksum that fails": ["110105194912310021", "6222021234567890127", "91110000100017643X"],
    "a date that is none": ["110105194913310022"],
    "a day to come": ["11010520991231001X"],
    "a place that is none": ["990105194912310025"],
    "15 digits that no word explains": ["110105491231002"],
    "part of a longer number": ["138001380001", "0.13800138000", "13800138000.5", "a13800138000"],
    "a number of something else": [
        "订单号13800138000",
        "编号：13800138000",
        "https://a.cn/13800138000.html",
        "uid=13800138000",
        "共13800138000元",
        "￥13800138000",
        "订单号6222021234567890128",
    ],
    "post numbers that pass Luhn": ["4111111111111111"],
    "service lines": ["400-800-8888"],
    "nobody's addresses": [
        "192.168.1.100",
        "127.0.0.1",
        "203.0.113.7",
        "2001:db8::1",
        "2001:3::/32",
        "1.0.0.127.in-addr.arpa",
        "fe80::1:2",
        "user@example.com",
        "a@b.local",
        "git@github.com:a/b.git",
        "icon@2x.png",
    ],
    "versions and sections": ["version 10.20.30.40", "Chrome/120.0.6099.109", "1.2.3.4 概述"],
    "no context": ["E12345678", "12345678", "zhang_san1", "G20峰会", "N95口罩", "B12"],
    "public accounts and products": ["微信公众号：renminribao1", "微信8.0.32", "QQ2013版"],
    "licences": ["京ICP备12345678号", "沪B2-20090001"],
    "figures and releases": ["图A15.2", "Table B12.3", "Oracle R12.1", "Ubuntu V71.0"],
    "values of variables": ["read_bytes=18626220032", '"id":"13800138000"'],
    "code": ["r'('+variable_re+')'"],
    "vertebrae": ["患者T12骨折"],
    "times and MACs": ["12:30:45", "00:1a:2b:3c:4d:5e", "2024-01-01 12:00:00"],
}


@pytest.mark.parametrize(
    ("entity", "text", "what"), [(e, *case) for e, cases in TAKEN.items() for case in cases]
)
def test_is_taken(entity, text, what):
    assert (what, entity) in found(text)


@pytest.mark.parametrize(
    "text", [text for texts in LEFT.values() for text in texts], ids=lambda text: text[:30]
)
def test_is_left(text):
    assert found(text) == []


def test_every_structured_entity_has_a_detector_in_order_of_trust():
    order = list(dict.fromkeys(detector.entity for detector in DETECTORS))
    assert order == [entity for entity in ENTITIES if entity not in NAMED]
    assert set(TAKEN) == set(order)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # an address takes the number in it
        ("13800138000@qq.com", [("13800138000@qq.com", "email")]),
        # a resident id passes for no card, whatever its context
        ("银行 11010519491231002X", [("11010519491231002X", "resident_id")]),
        # a mobile number that is also a WeChat id
        ("微信：13800138000", [("13800138000", "mobile")]),
        ("护照E12345678 QQ群：972371068", [("E12345678", "passport"), ("972371068", "qq")]),
    ],
)
def test_the_more_trusted_takes_all(text, expected):
    assert found(text) == expected


def test_windows_change_nothing():
    rng = random.Random(1)
    pieces = [text for cases in TAKEN.values() for text, _ in cases]
    for _ in range(100):
        chosen = rng.choices(pieces, k=8)
        gaps = ["。" * rng.choice((1, 20, 25, 49, 75, 400)) for _ in chosen]
        text = "".join(itertools.chain.from_iterable(zip(chosen, gaps, strict=True)))
        apart = [hit for piece in chosen for hit in found(piece)]
        assert found(text) == apart


class TestRecords:
    def test_recall_and_precision(self):
        scores = privacy.scores(seed=11, each=60)
        assert set(scores) == {entity for entity in ENTITIES if entity not in NAMED}
        for entity, score in scores.items():
            assert score.right >= 50, entity
            assert score.recall >= 0.99 and score.precision >= 0.98, (entity, score)

    def test_the_generator_knows_nothing_of_the_engine(self):
        for module in (records, values, lookalikes):
            assert module.__file__
            tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
            names = [
                node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom | ast.Import)
            ]
            assert names and not any("data_tools" in str(name) for name in names)

    def test_the_same_seed_gives_the_same_records(self):
        first, again = (list(records.records(5, 2)) for _ in range(2))
        assert first == again != list(records.records(6, 2))

    def test_labels_are_where_they_say(self):
        for record in records.records(5, 5):
            for (_, end, _), (start, _, _) in itertools.pairwise(record.labels):
                assert end <= start
            assert all(record.text[a:b].strip() == record.text[a:b] for a, b, _ in record.labels)


def test_the_standard_library_has_authors_and_no_other_private_data():
    entities = {hit.entity for hit in privacy.hits(privacy.library(tests=False))}
    # documentation of what an address is: see docs/privacy.md
    assert entities <= {"email", "ip"}
