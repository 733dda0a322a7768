"""Documents: identity, and their tables."""

import pyarrow.parquet as pq

from data_tools import document as documents
from data_tools.document import Document, digest, read_tables, table_writer


def test_identity_is_the_place_and_content_is_apart():
    a = Document.make("text", "s", "web", "f", 0, {})
    b = Document.make("text", "s", "web", "f", 9, {})
    assert a.id != b.id and a.content_hash == b.content_hash
    c = a.with_text("other")
    assert c.id == a.id and c.content_hash != a.content_hash
    assert c.with_text("text") == a and a.with_text("text") is a


def test_digest_keeps_its_parts_apart():
    assert digest("ab", "c") != digest("a", "bc") and len(digest("a")) == 16


def test_hashes_do_not_move():
    """Every document id of every corpus hangs on these: they may not change."""
    made = Document.make("中文", "web", "web", "a/b.jsonl", 17, {})
    assert made.id.hex() == "eb31ee76d0bf316ef8733f55a2df9cb7"
    assert made.content_hash.hex() == "6364689b657032108dd5dd2dde2d86f5"


def test_tables_give_everything_back_in_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "ROW_GROUP_BYTES", 1100)
    made = [
        Document.make(f"\x00\t中文🙂 {i}" * 9, "s", "web", "路径", i, {"k": "值"}) for i in range(7)
    ]
    for name, part in (("a", made[:5]), ("b", made[5:]), ("c", [])):
        with table_writer(tmp_path / name) as write:
            for d in part:
                write(d)
    assert list(read_tables([tmp_path / n for n in "abc"])) == made
    assert pq.ParquetFile(tmp_path / "a").num_row_groups == 3
