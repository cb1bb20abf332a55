"""Triple files: what is read, what is refused and why, and the index of known answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from beltrami.data.text import MAX_LINE
from beltrami.data.triples import (
    KnownTails,
    TripleError,
    TripleSet,
    add_reciprocals,
    load_triples,
)

GOOD = {
    "train": "dog\tis_a\tcanine\nwolf\tis_a\tcanine\ndog\tlikes\tbone\n",
    "valid": "wolf\tlikes\tbone\n",
    "test": "fox\tis_a\tcanine\ndog\tis_a\tcanine\n",
}


def write(folder: Path, files: dict[str, str | bytes], suffix: str = ".txt") -> Path:
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        (folder / f"{name}{suffix}").write_bytes(data)
    return folder


def test_a_folder_is_read(tmp_path: Path) -> None:
    graph = load_triples(write(tmp_path, GOOD), name="pets")
    assert graph.name == "pets"
    assert graph.entities == ("dog", "canine", "wolf", "bone", "fox")
    assert graph.relations == ("is_a", "likes")
    assert graph.train.tolist() == [[0, 0, 1], [2, 0, 1], [0, 1, 3]]
    assert graph.test.tolist() == [[4, 0, 1], [0, 0, 1]]
    assert graph.train.dtype == torch.int64


def test_the_summary_counts_what_training_cannot_know(tmp_path: Path) -> None:
    counts = load_triples(write(tmp_path, GOOD)).summary()
    assert counts["entities"] == 5
    assert counts["relations"] == 2
    assert counts["train"] == 3
    assert counts["valid_unseen_entities"] == counts["valid_unseen_triples"] == 0
    assert counts["test_unseen_entities"] == counts["test_unseen_triples"] == 1  # fox
    assert counts["valid_in_train"] == 0
    assert counts["test_in_train"] == 1
    assert counts["test_unseen_relations"] == 0


@pytest.mark.parametrize("suffix", [".txt", ".tsv", "-prefix"])
def test_file_names(tmp_path: Path, suffix: str) -> None:
    if suffix == "-prefix":
        write(tmp_path, {f"wordnet-mlj12-{k}": v for k, v in GOOD.items()})
    else:
        write(tmp_path, GOOD, suffix)
    assert len(load_triples(tmp_path).train) == 3


def test_headers_windows_line_ends_and_byte_order_marks(tmp_path: Path) -> None:
    train = "\ufeffHead\tRelation\tTail\r\n" + GOOD["train"].replace("\n", "\r\n") + "\r\n"
    graph = load_triples(write(tmp_path, GOOD | {"train": train}))
    assert graph.entities[:2] == ("dog", "canine")
    assert len(graph.train) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tr\tb\na\tb\n", r"train\.txt, line 2: expected 3 tab-separated columns .* found 2"),
        ("a\tr\tb\n\na r b\n", r"line 3: expected 3 .* found 1: 'a r b'"),
        ("a\tr\tb\tc\n", r"line 1: .* found 4"),
        ("a\t\tb\n", r"line 1: the relation is empty"),
        (" \tr\tb\n", r"line 1: the head is empty"),
        ("", r"train\.txt has no triples"),
        ("head\trelation\ttail\n", r"train\.txt has no triples"),
        (b"a\tr\tb\n\xff\xfe\tr\tb\n", r"line 2: not UTF-8 text \(byte 0 of the line\)"),
        ("a\tr\tb\na\tr\t" + "x" * MAX_LINE + "\n", r"line 2: longer than 1048576 characters"),
    ],
)
def test_bad_files_are_named_with_their_line(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    write(tmp_path, GOOD | {"train": content})
    with pytest.raises(TripleError, match=message):
        load_triples(tmp_path)


def test_an_endless_line_is_refused_without_reading_it(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with (tmp_path / "train.txt").open("wb") as file:
        file.truncate(1 << 36)  # 64 GB of zeros, which take no room on the disk
    with pytest.raises(TripleError, match="line 1: longer than"):
        load_triples(tmp_path)


def test_missing_and_ambiguous_files(tmp_path: Path) -> None:
    with pytest.raises(TripleError, match="does not exist; pass the folder"):
        load_triples(tmp_path / "nowhere")
    with pytest.raises(TripleError, match=r"no train\.txt or train\.tsv"):
        load_triples(tmp_path)
    write(tmp_path, GOOD)
    with pytest.raises(TripleError, match="is a file; pass the folder"):
        load_triples(tmp_path / "train.txt")
    write(tmp_path, {"train": GOOD["train"]}, ".tsv")
    with pytest.raises(TripleError, match=r"several files for train \(train\.txt, train\.tsv\)"):
        load_triples(tmp_path)
    (tmp_path / "train.tsv").unlink()
    (tmp_path / "valid.txt").unlink()
    (tmp_path / "valid.txt").mkdir()
    with pytest.raises(TripleError, match=r"cannot read .*valid\.txt: Is a directory"):
        load_triples(tmp_path)


def test_repeated_triples_are_kept_once_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path, GOOD | {"train": GOOD["train"] * 2})
    with pytest.warns(UserWarning, match=r"train\.txt repeats 3 of its 6 triples"):
        graph = load_triples(tmp_path)
    assert len(graph.train) == 3


def test_the_digest_tells_graphs_apart(tmp_path: Path) -> None:
    graph = load_triples(write(tmp_path, GOOD))
    assert graph.digest() == load_triples(tmp_path, name="other").digest()
    write(tmp_path, GOOD | {"valid": "wolf\tlikes\tdog\n"})
    assert graph.digest() != load_triples(tmp_path).digest()


def test_a_set_checks_its_tensors() -> None:
    one = torch.tensor([[0, 0, 1]])
    with pytest.raises(ValueError, match="entities must not repeat a value, got 'a' twice"):
        TripleSet("x", ("a", "a"), ("r",), one, one, one)
    with pytest.raises(ValueError, match="valid has indices beyond"):
        TripleSet("x", ("a", "b"), ("r",), one, one + 1, one)
    with pytest.raises(ValueError, match=r"test must be int64 of shape \(m, 3\)"):
        TripleSet("x", ("a", "b"), ("r",), one, one, one.int())
    with pytest.raises(ValueError, match="train must hold at least one triple"):
        TripleSet("x", ("a", "b"), ("r",), one[:0], one, one)
    with pytest.raises(ValueError, match="one of 'train', 'valid', 'test'; got 'dev'"):
        TripleSet("x", ("a", "b"), ("r",), one, one, one).split("dev")


triples = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=30
)


@given(triples)
def test_known_tails_are_those_of_a_dictionary(rows: list[tuple[int, int, int]]) -> None:
    both = add_reciprocals(torch.tensor(rows), 2)
    index = KnownTails.of(both, entities=5)
    truth: dict[tuple[int, int], set[int]] = {}
    for h, r, t in rows:
        truth.setdefault((h, r), set()).add(t)
        truth.setdefault((t, r + 2), set()).add(h)
    heads, relations = torch.cartesian_prod(torch.arange(5), torch.arange(4)).unbind(1)
    expected = [
        sorted(truth.get((h, r), ()))
        for h, r in zip(heads.tolist(), relations.tolist(), strict=True)
    ]
    row, tail = index.pairs(heads, relations)
    assert list(zip(row.tolist(), tail.tolist(), strict=True)) == [
        (i, t) for i, row_tails in enumerate(expected) for t in row_tails
    ]


def test_known_tails_of_a_set_cover_all_splits(tmp_path: Path) -> None:
    graph = load_triples(write(tmp_path, GOOD))
    _, tails = graph.known_tails.to("cpu").pairs(torch.tensor([1]), torch.tensor([2]))
    assert tails.tolist() == [0, 2, 4]  # dog and wolf of train, fox of test
