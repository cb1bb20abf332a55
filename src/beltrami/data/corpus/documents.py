"""The documents of a text, one by one, in the same order each time.

    stdlib                  the source of the running Python's standard library, without its tests
    taxa                    descriptions of taxa, from the data set ncbi-taxonomy
    FILE                    a text; a line <|endoftext|> ends a document
    FILE.jsonl, .json.gz    an object a line, with its text in a field
    FILE.parquet            a table with its text in a column
    FOLDER                  all of these below it, or a data set that Hugging Face datasets saved

Texts and JSON lines may be compressed (.gz). Documents without a visible character are left out.
"""

from __future__ import annotations

import json
import os
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from beltrami.data.cache import MissingDataError, path_of
from beltrami.data.ncbi import read_descriptions
from beltrami.data.output_folder import read_object
from beltrami.data.text import DataWarning, check_nul, read_lines, read_raw_lines
from beltrami.data.vectors.library import library

END_OF_TEXT = "<|endoftext|>"
STDLIB, TAXA = "stdlib", "taxa"
NAMED = (STDLIB, TAXA)
PLAIN_TEXT = (".txt", ".md", ".rst", ".py")  # in a folder; a file that is named may end in anything
JSON_LINES = (".jsonl", ".jsonl.gz", ".json.gz")
PARQUET = ".parquet"
MAX_DOCUMENT = 1 << 28  # characters
BATCH = 1024  # rows of a table that are read at once

_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_HEAD = 300  # characters, in which generated source says that it is


def documents(source: str | Path, *, field: str = "text") -> Iterator[str]:
    """The documents of a text; a source that cannot be read, or holds none, is a `ValueError`.

    Args:
        source: one of `NAMED`, or a file or a folder; a `Path` is never taken for a name.
        field: where the text is in JSON lines and tables.
    """
    return _not_blank(_reader(source, field), source)


def _reader(source: str | Path, field: str) -> Iterable[str]:
    if source == STDLIB:
        return _standard_library()
    if source == TAXA:
        try:
            return read_descriptions(path_of("ncbi-taxonomy"))
        except MissingDataError as error:
            raise ValueError(f"the text {TAXA}: {error}") from error
    path = Path(source).expanduser()
    if path.is_file():
        return _file(path, field)
    if not path.is_dir():
        raise ValueError(
            f"the text {str(source)!r} is not there; give a file or a folder, or one of "
            f"{', '.join(NAMED)}"
        )
    if (path / "dataset_dict.json").is_file():
        splits = (read_object(path / "dataset_dict.json") or {}).get("splits") or ["train"]
        raise ValueError(
            f"{path} holds the splits {', '.join(splits)}; give the folder of one, such as "
            f"{path / splits[0]}"
        )
    saved = all((path / name).is_file() for name in ("state.json", "dataset_info.json"))
    return _saved_dataset(path, field) if saved else _folder(path, field)


def _not_blank(texts: Iterable[str], source: str | Path) -> Iterator[str]:
    empty = True
    for text in texts:
        if text and not text.isspace():
            empty = False
            yield text
    if empty:
        raise ValueError(f"{source} is a text without documents; give one that holds some")


def _standard_library() -> Iterator[str]:
    for path in _files_below(Path(sysconfig.get_path("stdlib")), _NOT_LIBRARY):
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8", errors="replace")
            if "generated" not in text[:_HEAD].lower():  # tables of code pages, for instance
                yield text


def _folder(folder: Path, field: str) -> Iterator[str]:
    others = unreadable = 0
    for path in _files_below(folder):
        name = path.name.lower()
        if name.endswith(PLAIN_TEXT):
            try:
                yield from _text(path)
            except ValueError:
                unreadable += 1
        elif name.endswith((*JSON_LINES, PARQUET)):
            yield from _file(path, field)
        else:
            others += 1
    if others or unreadable:
        warnings.warn(
            f"{folder}: left out {unreadable} files that are not UTF-8 text and {others} that do "
            f"not end in {' '.join((*PLAIN_TEXT, *JSON_LINES, PARQUET))}",
            DataWarning,
            stacklevel=2,
        )


def _files_below(root: Path, left_out: Iterable[str] = ()) -> Iterator[Path]:
    """Files in the order of their names, without hidden files and folders."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in {*folders}.difference(left_out) if name[0] != ".")
        yield from (Path(folder, name) for name in sorted(files) if name[0] != ".")


def _file(path: Path, field: str) -> Iterator[str]:
    name = path.name.lower()
    if name.endswith(JSON_LINES):
        return _json_lines(path, field)
    return _parquet(path, field) if name.endswith(PARQUET) else _text(path)


def _text(path: Path) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for number, line in read_raw_lines(path, max_length=MAX_DOCUMENT):
        check_nul(line, path, number, ValueError)
        if line.strip() == END_OF_TEXT:
            yield "".join(lines)
            lines, size = [], 0
            continue
        lines.append(line)
        size += len(line)
        if size > MAX_DOCUMENT:
            raise ValueError(
                f"{path}, line {number}: the document is larger than {MAX_DOCUMENT >> 20} MiB; "
                f"write a line {END_OF_TEXT} between documents"
            )
    yield "".join(lines)


def _json_lines(path: Path, field: str) -> Iterator[str]:
    for number, line in read_lines(path, max_length=MAX_DOCUMENT):
        place = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f'{place} is not JSON ({error}); write an object a line: {{"{field}": "..."}}'
            ) from error
        fields = record if isinstance(record, dict) else {}
        text = _checked_text(fields.get(field), place, field, fields)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{place}: the text holds half a surrogate pair; remove it") from None
        yield text


def _checked_text(value: Any, place: str | Path, field: str, fields: Iterable[str]) -> str:
    if not isinstance(value, str):
        raise ValueError(
            f"{place}: there is no text in the field {field!r}; its fields are "
            f"{', '.join(fields) or '(none)'}"
        )
    return value


def _parquet(path: Path, field: str) -> Iterator[str]:
    arrow, parquet = _arrow(path, "pyarrow"), _arrow(path, "pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            chosen = [field] if field in names else []
            batches = file.iter_batches(BATCH, columns=chosen)
            yield from _column(path, batches, field, names)
    except (OSError, arrow.ArrowException) as error:
        raise ValueError(f"{path} is not a whole parquet file: {error}") from error


def _saved_dataset(folder: Path, field: str) -> Iterator[str]:
    """Rows of what `datasets.Dataset.save_to_disk` wrote: Arrow files that state.json lists."""
    arrow, ipc = _arrow(folder, "pyarrow"), _arrow(folder, "pyarrow.ipc")
    state = read_object(folder / "state.json") or {}
    try:
        for listed in state.get("_data_files", ()):
            with arrow.memory_map(str(folder / listed["filename"])) as file:
                stream = ipc.open_stream(file)
                yield from _column(folder, stream, field, stream.schema.names)
    except (OSError, KeyError, TypeError, arrow.ArrowException) as error:
        raise ValueError(
            f"{folder} is not a whole data set of Hugging Face datasets: {error}"
        ) from error


def _column(path: Path, batches: Iterable[Any], field: str, names: list[str]) -> Iterator[str]:
    if field not in names:
        _checked_text(None, path, field, names)
    for batch in batches:
        for value in batch.column(field).to_pylist():
            if value is not None:
                yield _checked_text(value, path, field, names)


def _arrow(path: Path, module: str) -> Any:
    return library(module, extra="parquet", needs=f"the table {path}")
