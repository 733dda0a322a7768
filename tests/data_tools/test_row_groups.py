"""Tables that are read by row groups, and written as they grow."""

import pyarrow as pa
import pyarrow.parquet as pq

from data_tools import row_groups
from data_tools.row_groups import GrowingTable
from data_tools.stage import Input

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def test_a_table_is_written_as_it_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(row_groups, "ROWS", 3)
    rows = [{"n": n, "text": "文" * n} for n in range(7)]
    with GrowingTable(tmp_path / "t", SCHEMA) as table:
        for row in rows:
            table.add(row)
    file = Input(tmp_path / "t", "t", "")
    groups = list(row_groups.row_groups([file, file], ["text"]))
    assert [len(g) for g in groups] == [3, 3, 1] * 2
    assert groups[0].column_names == ["text"]
    assert pq.read_table(tmp_path / "t").to_pylist() == rows


def test_no_row_is_no_file(tmp_path):
    with GrowingTable(tmp_path / "t", SCHEMA):
        pass
    assert not list(tmp_path.iterdir())
