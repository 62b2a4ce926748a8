import csv
import io
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpath.batch import sources
from counterpath.batch.sources import scan
from counterpath.utils.errors import InputError

CELLS = st.text(st.sampled_from('ab,"\n\r 1'), max_size=6)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), max_size=12),
    shard=st.integers(1, 5),
    ending=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    piece=st.sampled_from([1, 3, 7, 1 << 20]),
)
@settings(deadline=None)
def test_every_shard_has_the_rows_that_pandas_reads_there(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    shard: int,
    ending: str,
    last: bool,
    piece: int,
) -> None:
    stream = io.StringIO()
    csv.writer(stream, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *rows])
    text = stream.getvalue() if last or not rows else stream.getvalue()[: -len(ending)]
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(text.encode())
    before, sources._AT_ONCE = sources._AT_ONCE, piece
    try:
        count, cuts, names = scan(path, shard)
    finally:
        sources._AT_ONCE = before
    assert (count, names) == (len(rows), ["x", "y"])
    assert len(cuts) == -(-len(rows) // shard) + 1
    content = path.read_bytes()
    pieces = [content[start:end] for start, end in pairwise(cuts)]
    read = [pd.read_csv(io.BytesIO(b"x,y\n" + part), dtype=str, keep_default_na=False) for part in pieces]
    whole = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    assert [len(part) for part in read[:-1]] == [shard] * (len(pieces) - 1 if pieces else 0)
    if read:
        pd.testing.assert_frame_equal(pd.concat(read, ignore_index=True), whole)


def test_blank_lines_are_no_rows_and_a_mark_of_the_encoding_no_part_of_a_name(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("\ufeffname,age\r\n\r\n\r\nann,1\r\n\nbob,2\r\n\r\n".encode())
    count, cuts, names = scan(path, 1)
    assert (count, names) == (2, ["name", "age"])
    assert [path.read_bytes()[start:].split(b",")[0] for start in cuts[:-1]] == [b"ann", b"bob"]


def test_a_header_may_have_line_breaks_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('"first\nname",age\nann,1\n')
    assert scan(path, 10)[::2] == (1, ["first\nname", "age"])


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_without_a_header_there_is_no_table(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="expected a header"):
        scan(path, 10)


def test_a_quote_that_nothing_closes_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('name,age\n"ann,1\nbob,2\n')
    with pytest.raises(InputError, match="nothing closes"):
        scan(path, 10)
