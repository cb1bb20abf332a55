from __future__ import annotations

import contextlib
import gzip
import json
import sys
import tempfile
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beltrami.data import DataWarning
from beltrami.data.corpus import documents
from beltrami.data.corpus.documents import END_OF_TEXT
from beltrami.data.ncbi import DESCRIPTIONS, plain_text, read_descriptions
from tests.data.installed import need_installed


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_a_text_file_is_one_document_or_several(tmp_path: Path) -> None:
    path = tmp_path / "any.thing"
    path.write_bytes("\ufeffone\r\n\n  two é\n".encode())
    assert list(documents(path)) == ["one\r\n\n  two é\n"]
    path.write_text(f"a\n{END_OF_TEXT}\n \n{END_OF_TEXT}\n{END_OF_TEXT}\nb\nc\n")
    assert list(documents(str(path))) == ["a\n", "b\nc\n"]


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines({"text": "one", "id": 1}, {"text": "two\n\0"}) + "\n\n")
    assert list(documents(path)) == ["one", "two\n\0"]
    with gzip.open(tmp_path / "b.json.gz", "wt") as file:
        file.write(lines({"body": "x"}))
    assert list(documents(tmp_path / "b.json.gz", field="body")) == ["x"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "without documents"),
        (lines({"text": " \n"}), "without documents"),
        (lines({"text": "a"}, {"body": "b", "id": 1}), r"line 2.*'text'.*body, id"),
        (lines({"text": 3}), "line 1.*no text in the field"),
        (lines(["a"]), r"line 1.*\(none\)"),
        (lines({"text": "a"}) + "{", "line 2 is not JSON"),
        ("[" * 100_000, "line 1 is not JSON"),
        (r'{"text": "\ud800"}', "line 1.*surrogate"),
        ('{"text": "\0"}', "line 1.*NUL"),
    ],
)
def test_bad_json_lines_are_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        list(documents(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"one\n\xff\xfe", "line 2: not UTF-8"),
        ("a.txt", b"one\ntwo\0", "line 2: holds a NUL"),
        ("a.txt", b"", "without documents"),
        ("a.txt.gz", b"not gzip", "cannot read"),
        ("a.jsonl.gz", gzip.compress(b"{}" * 999)[:-9], "cannot read"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        list(documents(path))
    assert str(path) in str(error.value)


@given(st.binary(max_size=300), st.sampled_from(["a.txt", "a.jsonl", "a.txt.gz", "a.jsonl.gz"]))
def test_any_bytes_are_documents_or_a_value_error(content: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        for data in (content, gzip.compress(content)[: len(content)], zlib.compress(content)):
            path.write_bytes(data)
            with contextlib.suppress(ValueError):  # and nothing else
                assert all(text.encode() for text in documents(path))


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_any_text_survives_json_lines(texts: list[str]) -> None:
    visible = [text for text in texts if text.strip()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_text(lines(*({"text": text} for text in [*texts, "last"])))
        assert list(documents(path)) == [*visible, "last"]


def test_a_folder_is_read_in_order_and_says_what_it_left_out(tmp_path: Path) -> None:
    for name, content in {
        "b/z.txt": b"5",
        "a.txt": b"1",
        "b/y.PY": b"4",
        "c.jsonl": lines({"text": "2"}, {"text": "3"}).encode(),
        "b/image.png": b"\x89PNG",
        "bad.md": b"\xff",
        ".git/config.txt": b"hidden",
        ".hidden.txt": b"hidden",
    }.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with pytest.warns(DataWarning, match="left out 1 files that are not UTF-8 text and 1 that"):
        assert list(documents(tmp_path / "texts")) == ["1", "2", "3", "4", "5"]
    (tmp_path / "texts" / "c.jsonl").write_text("{}")
    with pytest.raises(ValueError, match=r"c\.jsonl, line 1"):
        list(documents(tmp_path / "texts"))


def test_what_is_not_there_is_an_error_at_once(tmp_path: Path, cache: Path) -> None:
    for source in (tmp_path / "missing", "stdlip", Path("stdlib")):
        with pytest.raises(ValueError, match=r"is not there; .* stdlib, taxa"):
            documents(source)
    with pytest.raises(ValueError, match="beltrami data get ncbi-taxonomy"):
        documents("taxa")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty is a text without documents"):
        list(documents(tmp_path / "empty"))


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    texts = [f"text {number}" for number in range(3000)]
    parquet.write_table(arrow.table({"text": [*texts, None], "n": range(3001)}), path)
    assert list(documents(path)) == texts
    assert list(documents(tmp_path)) == texts
    with pytest.raises(ValueError, match=r"a\.parquet: .* field 'body'; its fields are text, n"):
        list(documents(path, field="body"))
    with pytest.raises(ValueError, match=r"a\.parquet: there is no text in the field 'n'"):
        list(documents(path, field="n"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"a\.parquet is not a whole parquet file"):
        list(documents(path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r'pip install "beltrami\[parquet\]"'):
        list(documents(path))


def test_data_sets_that_hugging_face_saved(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    texts = [f"text {number}" for number in range(50)]
    rows = datasets.Dataset.from_dict({"text": texts, "n": range(50)})
    rows.save_to_disk(tmp_path / "all", num_shards=3)
    assert list(documents(tmp_path / "all")) == texts
    shuffled = rows.shuffle(seed=1).select(range(20))
    shuffled.save_to_disk(tmp_path / "some")
    assert list(documents(tmp_path / "some")) == shuffled["text"][:]
    with pytest.raises(ValueError, match=r"some: .* field 'body'; its fields are text, n"):
        list(documents(tmp_path / "some", field="body"))
    datasets.DatasetDict(train=rows, test=shuffled).save_to_disk(tmp_path / "splits")
    with pytest.raises(ValueError, match=r"the splits train, test; give .*splits/train"):
        documents(tmp_path / "splits")
    assert list(documents(tmp_path / "splits" / "train")) == texts
    next((tmp_path / "all").glob("*00001*")).write_bytes(b"noise")
    with pytest.raises(ValueError, match="all is not a whole data set"):
        list(documents(tmp_path / "all"))


def test_the_standard_library_is_source_without_tests_and_tables() -> None:
    texts = list(documents("stdlib"))
    assert texts == list(documents("stdlib"))
    size = sum(len(text) for text in texts)
    assert 5e6 < size < 20e6
    assert any("class JSONDecoder" in text for text in texts)
    assert not any("Python Character Mapping Codec cp037" in text for text in texts)
    assert not any("class TestCase(unittest" in text for text in texts)


def test_descriptions_are_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    html = (
        ' <link rel="x" />  <p><i><b>Apis</b></i>&#160;is a genus &amp; more.</p><p>Two:</p>'
        "<ul><li>a<sub>1</sub></li> <li>b <math><mi>x</mi></math></li></ul> &lt;3"
    )
    assert plain_text(html) == "Apis is a genus & more.\nTwo:\na1\nb\n<3"
    zstandard = ModuleType("zstandard")

    class Decompressor:
        def stream_reader(self, file: Any) -> Any:
            return file

    zstandard.ZstdDecompressor = Decompressor  # type: ignore[attr-defined]
    zstandard.ZstdError = type("ZstdError", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zstandard", zstandard)
    with pytest.raises(ValueError, match=r"description\.zstd.*data get"):
        list(read_descriptions(tmp_path))
    (tmp_path / DESCRIPTIONS).write_bytes(f"{html}\n<p>é</p>\n".encode())
    assert list(read_descriptions(tmp_path)) == [plain_text(html), "é"]


@pytest.mark.slow
def test_all_descriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("zstandard")
    monkeypatch.undo()  # the cache of whoever runs the tests
    need_installed("ncbi-taxonomy")
    texts = list(documents("taxa"))
    assert len(texts) == 216_479
    assert sum(len(text.encode()) for text in texts) == 68_252_223
