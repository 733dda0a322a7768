"""The scrubber: what policies do to a text, and that doing it twice does no more."""

import random

import pytest

from bench.records import records
from data_tools.document import Drop
from data_tools.privacy import placeholder
from data_tools.privacy.claims import Claims
from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.scrub import Scrubbed, Scrubber
from data_tools.privacy.shadow import shadow
from data_tools.privacy.span import Span

KEY = b"sixteen bytes ok"
TEXT = "电话13800138000，邮箱a.b@qq.com，代码91110000100017643K，诊断E11.900。"


def scrubber(type: str = "web", **policies: str) -> Scrubber:
    key_file = "/key" if "hash" in policies.values() else ""
    config = PrivacyConfig(key_file=key_file, **policies)  # pyright: ignore
    return Scrubber(config.of(type), KEY)


def scrubbed(text: str, type: str = "web", **policies: str) -> str:
    result = scrubber(type, **policies).scrub(text)
    assert isinstance(result, Scrubbed)
    return result.text


def test_the_default_masks_persons_and_keeps_what_names_none():
    result = scrubber().scrub(TEXT)
    assert isinstance(result, Scrubbed)
    expected = "电话1**********，邮箱*.*@**.com，代码91110000100017643K，诊断E11.900。"
    assert result.text == expected
    assert result.counts == {"mobile": 1, "email": 1, "uscc": 1, "icd10": 1}


def test_code_keeps_its_numbers_and_loses_its_authors():
    text = (
        "# by a.b@qq.com, id 11010519491231002X\nassert f('13800138000') == 6222021234567890128\n"
    )
    expected = (
        "# by *.*@**.com, id ******************\nassert f('13800138000') == 6222021234567890128\n"
    )
    assert scrubbed(text, "code") == expected


@pytest.mark.parametrize(
    ("entity", "original", "masked"),
    [
        ("mobile", "13800138000", "1**********"),
        ("mobile", "+86 138-0013-8000", "+86 1**-****-****"),
        ("mobile", "１３８００１３８０００", "１**********"),
        ("landline", "（010）6275-1234转8012", "（0**）****-*********"),
        ("landline", "86621234", "********"),
        ("email", "zhang.san@mail.pku.edu.cn", "*****.***@****.***.***.cn"),
        ("resident_id", "110105 19491231 002X", "****** ******** ****"),
        ("bank_card", "6222-0212-3456-7890", "****-****-****-****"),
        ("passport", "E12345678", "E********"),
        ("plate", "京A·12345", "京*·*****"),
        ("ip", "8.8.8.8", "*.*.*.*"),
        ("ip", "2001:da8::1", "****:***::*"),
        ("qq", "12345678", "********"),
        ("wechat", "wxid_a1-b", "****_**-*"),
        ("uscc", "91110000100017643K", "******************"),
        ("person", "张三丰", "***"),
        ("mobile", "138\u200b0013\u200b8000", "1**\u200b****\u200b****"),
    ],
)
def test_a_mask_has_the_shape_of_what_it_hides(entity, original, masked):
    assert placeholder.mask(entity, original) == masked
    assert len(masked) == len(original)


def test_a_hash_is_the_same_for_one_number_however_it_is_set():
    forms = ("13800138000", "138-0013-8000", "１３８００１３８０００", "+86 138 0013 8000")
    hashes = {scrubbed(f"电话{form}。", mobile="hash") for form in forms}
    assert hashes == {"电话<mobile:ndipemindkojdlgb>。"}  # moves with the key or the form alone
    assert scrubbed("电话13800138001。", mobile="hash") not in hashes
    other = Scrubber(PrivacyConfig(mobile="hash", key_file="/key"), b"another 16 bytes")
    result = other.scrub("电话13800138000。")
    assert isinstance(result, Scrubbed) and result.text not in hashes


def test_one_number_of_two_types_has_two_hashes():
    as_qq, as_wechat = (placeholder.hashed(entity, "12345678", KEY) for entity in ("qq", "wechat"))
    assert as_qq.partition(":")[2] != as_wechat.partition(":")[2]


def test_generalised_codes_keep_their_category():
    assert scrubbed("诊断E11.900，I10。", icd10="generalise") == "诊断E11，I10。"


def test_drop_says_what_was_found_and_not_what_it_was():
    result = scrubber(mobile="drop", email="drop").scrub(TEXT + "13900139000")
    detail = "1 of email, 2 of mobile; the policy is to drop the document"
    assert result == Drop("privacy", detail)


def test_what_a_mask_uncovers_is_dropped_too():
    text = "京A010QQ20018"  # what follows QQ is its number first, and then no part of a plate
    assert scrubbed(text, plate="keep") == "京A010QQ*****"
    result = scrubber(plate="drop").scrub(text)
    assert result == Drop("privacy", "1 of plate; the policy is to drop the document")


def test_people_see_everything_masked_that_is_not_kept():
    policies = {"mobile": "hash", "email": "drop", "icd10": "generalise", "ip": "keep"}
    text = scrubber(**policies).mask(TEXT + " 8.8.8.8，")
    expected = "电话1**********，邮箱*.*@**.com，代码******************，诊断E11。 8.8.8.8，"
    assert text == expected


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("身份证11010519491231", "身份证**************"),
        ("卡号 6222 0212 3456 7", "卡号 **** **** **** *"),
        ("１１０１０５１９", "********"),
        ("邮箱 zhang.san@q", "邮箱 *****.***@*"),
        ("3 found, at most 0.3 allowed 12", "3 found, at most 0.3 allowed 12"),
        ("copy of document 9f86d081884c7d65", "copy of document 9f86d081884c7d65"),
    ],
)
def test_people_do_not_see_what_an_excerpt_cuts(text, masked):
    assert scrubber().mask(text) == masked


FRAGMENTS = (
    *"0123456789X.-:@*/ ，。\n",
    *("138", "0013", "8000", "86", "+86", "010", "6275", "110105", "19491231", "002X", "6222"),
    *(
        "微信",
        "QQ",
        "电话",
        "护照",
        "订单",
        "order",
        "号",
        "no",
        "qq.com",
        "@163.com",
        "京A",
        "E11",
    ),
    *(
        "１３８",
        "2001:",
        "da8::",
        "8.8",
        "诊断",
        "wxid_",
        "a1b2",
        "<mobile:",
        ">",
        "\u200b",
        "id",
        "vx",
    ),
)


@pytest.mark.parametrize("policy", ["mask", "hash"])
def test_twice_is_once(policy):
    entities = ("mobile", "email", "resident_id", "bank_card", "landline", "qq", "wechat", "ip")
    once = scrubber(**dict.fromkeys((*entities, "plate", "passport", "uscc"), policy))
    rng = random.Random(7)
    texts = ["".join(rng.choices(FRAGMENTS, k=rng.randint(3, 40))) for _ in range(4000)]
    rows = [record.text for record in records(3, 10)]
    texts += rows + ["".join(rng.sample(rows, 3)) for _ in range(500)]
    changed = 0
    for text in texts:
        first = once.scrub(text)
        assert isinstance(first, Scrubbed)
        second = once.scrub(first.text)
        assert isinstance(second, Scrubbed) and second.text == first.text
        changed += first.text != text
    assert changed > 1000


def test_what_is_around_stays():
    rng = random.Random(9)
    for record in records(4, 10):
        if not record.labels:
            continue
        result = scrubber(uscc="mask").scrub(record.text)
        assert isinstance(result, Scrubbed)
        assert len(result.text) == len(record.text)
        inside = {i for start, end, _ in record.labels for i in range(start, end)}
        at = rng.choice([i for i in range(len(record.text)) if i not in inside])
        assert result.text[at] == record.text[at]


def test_the_shadow_knows_where_it_is_from():
    text = "a\u200bｂ１\ufeff２.c"
    form = shadow(text)
    assert form.text == "ab12.c"
    for start in range(len(form.text)):
        for end in range(start + 1, len(form.text) + 1):
            a, b = form.original(start, end)
            assert shadow(text[a:b]).text == form.text[start:end]
    assert shadow("（中文），").text == "（中文），"


def test_the_first_claim_stands():
    claims = Claims()
    for start, end in ((5, 9), (0, 2), (8, 12), (2, 5), (3, 4), (9, 10), (0, 20), (12, 13)):
        claims.add(Span(start, end, "qq"))
    assert [span[:2] for span in claims] == [(0, 2), (2, 5), (5, 9), (9, 10), (12, 13)]


def test_names_are_scrubbed_after_everything_else():
    config = PrivacyConfig(ner="jiagu", place="tag")
    result = Scrubber(config, None).scrub("他的老师是李建国，住在上海市，电话13800138000。")
    assert isinstance(result, Scrubbed)
    assert result.text == "他的老师是***，住在上海市，电话1**********。"
    assert result.counts == {"person": 1, "place": 1, "mobile": 1}
