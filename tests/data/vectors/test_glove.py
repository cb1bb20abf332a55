from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from beltrami.data.vectors import VectorsError
from beltrami.data.vectors import glove as glove_module
from beltrami.data.vectors.glove import CONVERTED, WIDTH, open_glove
from tests.data.vectors.tables import check_reads

WORDS = ["the", '"', "cross-country", "café", "\\x", "vectors"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path))
    folder = tmp_path / "data" / "glove"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def matrix() -> torch.Tensor:
    return torch.randn(len(WORDS), WIDTH).round(decimals=4)


def document(numbers: torch.Tensor, order: list[int] | None = None) -> dict[str, object]:
    """As the package has it: settings, the words, then lists with norm and rank."""
    ranks = order or list(range(len(WORDS)))
    return {
        "precision": 8,
        "size": len(WORDS),
        "dimensions": WIDTH,
        "words": WORDS,
        "vectors": {
            WORDS[rank]: [*numbers[rank].tolist(), float(numbers[rank].norm()), rank]
            for rank in ranks
        },
        "unkVector": [0] * 101 + [-1],
    }


def write(folder: Path, content: dict[str, object], **options: object) -> None:
    (folder / "wink.json").write_text(json.dumps(content, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"separators": (",", ":")}])
@pytest.mark.parametrize("order", [None, [3, 1, 5, 0, 2, 4]])
def test_the_document_is_converted(
    folder: Path, options: dict[str, object], order: list[int] | None
) -> None:
    numbers = matrix()
    write(folder, document(numbers, order), **options)
    vectors = open_glove(folder)
    check_reads(vectors, numbers)
    assert vectors.labels == WORDS
    assert vectors.words == ["the", None, None, "café", None, "vectors"]


def test_it_is_converted_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = matrix()
    write(folder, document(numbers))
    left = folder / f".{CONVERTED}~killed.tmp"
    left.mkdir()
    open_glove(folder)
    monkeypatch.setattr(glove_module, "_write", None)
    (folder / "wink.json").unlink()
    check_reads(open_glove(folder), numbers)
    assert sorted(path.name for path in folder.iterdir()) == [CONVERTED, "manifest.json"]


def test_an_interrupted_conversion_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, document(matrix()))

    def interrupt(path: Path, content: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(glove_module, "write_atomically", interrupt)
        with pytest.raises(KeyboardInterrupt):
            open_glove(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "wink.json"]
    assert open_glove(folder).rows == len(WORDS)


def test_who_waited_for_the_lock_uses_the_others_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import contextmanager

    numbers = matrix()
    write(folder, document(numbers))
    real, locks = glove_module._convert, []

    @contextmanager
    def quicker(path, waiting):  # type: ignore[no-untyped-def]
        locks.append(path)
        real(folder, folder / CONVERTED, True)  # by another process, before we get the lock
        monkeypatch.setattr(glove_module, "_convert", None)
        yield True

    monkeypatch.setattr(glove_module, "locked", quicker)
    check_reads(open_glove(folder), numbers)
    assert [path.name for path in locks] == ["glove.lock"]


def test_without_locks_the_quicker_process_wins(folder: Path) -> None:
    numbers = matrix()
    write(folder, document(numbers))
    open_glove(folder)
    glove_module._convert(folder, folder / CONVERTED, False)  # the second to finish
    check_reads(open_glove(folder), numbers)
    assert not list(folder.glob(".*"))


def test_documents_that_are_wrong(folder: Path) -> None:
    with pytest.raises(VectorsError, match="holds no JSON document; run: beltrami data get glove"):
        open_glove(folder)
    whole = document(torch.zeros(len(WORDS), WIDTH))
    short = {**whole, "vectors": {"the": [0.0] * 50 + [0]}}
    for content, message in (
        ("{}", 'wink.json has no "size"'),
        ('{"size": 3}', "wink.json, byte 0: expected a word"),
        (json.dumps(whole)[:2000], r"wink.json, byte \d+: expected a word and its list"),
        (json.dumps({**whole, "size": 9}), "wink.json is cut short: no word of rank 6"),
        (json.dumps({**whole, "size": 3}), r"'café' has 102 numbers, the last 3.0; expected 102"),
        (json.dumps(short), "'the' has 51 numbers"),
        ('{"size": 1, "vectors": {"the": []}}', r"wink.json, byte 24: expected a word"),
        ('{"size": 1, "vectors": {"the": [1, "x"]}}', r"wink.json, byte 24: expected a word"),
        ('{"size": 1, "vectors": {"the": [1, nan]}}', r"'the' has 2 numbers, the last nan"),
    ):
        (folder / "wink.json").write_text(content)
        with pytest.raises(VectorsError, match=message):
            open_glove(folder)
    assert not (folder / CONVERTED).exists()
