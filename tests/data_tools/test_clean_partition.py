"""The clean stage: verdicts and rules in order, quality, and what is restored."""

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools.clean.min_length import MinLength
from data_tools.clean.partition import CleanConfig, NamedRule, clean, clean_partition
from data_tools.clean.symbol_ratio import SymbolRatio
from data_tools.clean.unicode_repair import UnicodeRepair
from data_tools.document import Document, Drop, read_tables, table_writer
from data_tools.drops import VERDICTS
from data_tools.stage import Input, Partition

SHORT = Document.make("a\r\nb → →", "s", "web", "f", 0, {"k": "v"})
REPAIR = NamedRule("unicode_repair", UnicodeRepair(), 0.0)
LONG = MinLength(characters=50)


def config(*rules: NamedRule, restored: tuple[str, ...] = ()) -> CleanConfig:
    return CleanConfig(rules, None, restored)


def test_a_rule_without_weight_drops_and_names_itself():
    result = clean(SHORT, config(REPAIR, NamedRule("min_length", LONG, 0.0)))
    assert isinstance(result, tuple)
    document, drop = result
    assert document.text == "a\nb → →"
    assert drop == Drop("min_length", "4 characters, at least 50 wanted")


def test_quality_is_the_share_of_the_weights_that_were_earned():
    rules = [
        NamedRule("min_length", LONG, 3.0),
        REPAIR,
        NamedRule("symbol_ratio", SymbolRatio(most=0.9), 1.0),
    ]
    result = clean(SHORT, config(*rules))
    assert isinstance(result, Document)
    assert result.quality == 0.25
    assert result.meta == {"k": "v", "faults": "min_length"}
    assert result.text == "a\nb → →"


def test_without_scored_rules_quality_is_whole():
    result = clean(SHORT, config(REPAIR))
    assert isinstance(result, Document) and result.quality == 1.0 and result.meta == {"k": "v"}


def test_a_restored_document_is_edited_and_never_dropped(tmp_path):
    other = Document.make("another, and as short", "s", "web", "f", 1, {})
    with table_writer(tmp_path / "in.parquet") as write:
        for document in (SHORT, other):
            write(document)
    verdict = {"id": SHORT.id, "rule": "exact_duplicate", "detail": "copy of another"}
    pq.write_table(pa.Table.from_pylist([verdict], VERDICTS), tmp_path / "verdicts.parquet")
    inputs = {
        "documents": (Input(tmp_path / "in.parquet", "p", ""),),
        "verdicts": (Input(tmp_path / "verdicts.parquet", "p", ""),),
    }
    rules = (REPAIR, NamedRule("min_length", LONG, 0.0))
    found = {}
    for name, restored in (("strict", ()), ("kind", (SHORT.id.hex(),))):
        (tmp_path / name).mkdir()
        partition = Partition("p", config(*rules, restored=restored), inputs)
        report = clean_partition(partition, tmp_path / name)
        kept = read_tables([tmp_path / name / "documents.parquet"])
        found[name] = ([d.text for d in kept], report["dropped"])
    assert found["strict"] == ([], {"exact_duplicate": 1, "min_length": 1})
    assert found["kind"] == (["a\nb → →"], {"min_length": 1})
    (row, _) = pq.read_table(tmp_path / "strict/dropped.parquet").to_pylist()
    assert row["id"] == SHORT.id and row["excerpt"] == SHORT.text and row["type"] == "web"
