"""Salts are what they claim to be."""

import random

import ftfy
import pytest

from bench import salts


def test_personal_data_stands_in_lines_of_the_text():
    text = "\n".join(f"第{n}行，有一些文字。" for n in range(30))
    page, values = salts.with_personal(text, random.Random(1))
    assert len(page.split("\n")) == 30
    assert len(values) == len(salts.SENTENCES)
    for value in values:
        assert page.count(value.value + value.after) == 1


def test_lines_are_put_around_a_text_that_stays():
    site = salts.sites()[3]
    text = "第一段。\n\n第二段。"
    page, lines = salts.with_lines(text, site, random.Random(1))
    assert set(lines) <= {*site.lines, *salts.COMMON_LINES} and lines
    assert "\n".join(line for line in page.split("\n") if line not in lines) == text


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_mojibake_loses_nothing(encoding: str):
    text = "欲穷千里目，更上一层楼。"
    damaged = salts.mojibake(text, encoding)
    assert damaged != text and "目" not in damaged
    assert ftfy.fix_text(damaged, uncurl_quotes=False, fix_character_width=False) == text
