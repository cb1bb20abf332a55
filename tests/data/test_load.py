from pathlib import Path

import pytest
import torch

from beltrami.data import (
    Hierarchy,
    HierarchyError,
    list_hierarchies,
    load_hierarchy,
)
from beltrami.data import load as module
from tests.data.installed import need_installed

OBO = "format-version: 1.2\n[Term]\nid: a\n[Term]\nid: b\nis_a: a\n"
JSON = '[["b", "a"]]'
NEWICK = "(b)a;"
XML = "<x><item><name>a</name><item><name>b</name></item></item></x>"
WORDNET = "00000010 03 n 01 a 0 000 | x\n00000020 03 n 01 b 0 001 @ 00000010 n 0000 | x\n"


def test_the_mammals_are_those_of_the_papers() -> None:
    h = load_hierarchy("wordnet-mammals")
    assert h.name == "wordnet-mammals"
    assert (len(h), len(h.edges), len(h.closure())) == (1180, 1180, 6540)
    assert [h.labels[root] for root in h.roots.tolist()] == ["mammal.n.01"]
    assert torch.equal(h.reduction().edges, h.edges)  # no edge to spare
    assert not h.is_tree
    pairs = {(h.labels[child], h.labels[parent]) for child, parent in h.closure().tolist()}
    assert ("dog.n.01", "carnivore.n.01") in pairs
    assert ("carnivore.n.01", "dog.n.01") not in pairs


def test_root_selects_a_part() -> None:
    dogs = load_hierarchy("wordnet-mammals", root="dog.n.01")
    assert dogs.name == "wordnet-mammals:dog.n.01"
    assert "poodle.n.01" in dogs.labels
    assert "cat.n.01" not in dogs.labels
    with pytest.raises(HierarchyError, match=r"no node labelled 'dog'; did you mean 'dog.n.01'"):
        load_hierarchy("wordnet-mammals", root="dog")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.tsv", "b\ta\n"),
        ("t.CSV", "b,a\n"),
        ("t.edges", "a,b"),
        ("t.json", JSON),
        ("t.obo", OBO),
        ("t.nwk", NEWICK),
        ("t.tre", NEWICK),
        ("t.xml", XML),
        ("t.txt", "b\ta\n"),
        ("t.txt", "(b)\ta\n"),
        ("t", "\ufeff " + JSON),
        ("t.dat", '{"name": "a", "children": [{"name": "b"}]}'),
        ("t.dat", OBO),
        ("t.dat", "\n[Term]\nid: a\n[Term]\nid: b\nis_a: a"),
        ("t.dat", NEWICK),
        ("t.dat", "[&R] " + NEWICK),
        ("t.dat", XML),
        ("data.noun", WORDNET),
    ],
)
def test_formats_are_told_by_ending_or_content(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    for spec in (file, str(file)):
        h = load_hierarchy(spec)
        child, parent = (h.labels[node].strip("()")[0] for node in h.edges[0].tolist())
        assert (len(h), child, parent) == (2, "b", "a")


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match=r"is a folder, without WordNet's data\.noun"):
        load_hierarchy(tmp_path)
    (tmp_path / "data.noun").write_text(WORDNET)
    assert len(load_hierarchy(tmp_path)) == 2


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match=r"'wordnet-noun' is.*did you mean 'wordnet-nouns'\?"):
        load_hierarchy("wordnet-noun")
    with pytest.raises(HierarchyError) as caught:
        load_hierarchy(tmp_path / "missing.tsv")
    assert all(name in str(caught.value) for name in list_hierarchies())


def test_a_path_is_never_taken_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hpo").write_text("b\ta\n")
    monkeypatch.chdir(tmp_path)
    assert load_hierarchy(Path("hpo")).labels == ("b", "a")


NOT_EMBEDDED = sorted(set(list_hierarchies()) - {"wordnet-mammals", "carnivores"})


@pytest.mark.parametrize("name", NOT_EMBEDDED)
def test_what_is_not_installed_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("BELTRAMI_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "DEBIAN_GENE_ONTOLOGY", tmp_path / "none")
    monkeypatch.setattr("beltrami.data.wordnet.DEBIAN_FOLDER", tmp_path / "none")
    with pytest.raises(HierarchyError, match=r"not installed.*beltrami data get [a-z0-9.-]+$"):
        load_hierarchy(name)


def test_fetched_sets_are_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hp.obo").write_text(OBO)
    (tmp_path / "icd10.xml").write_text(XML)
    monkeypatch.setattr("beltrami.data.cache.installed_path", lambda name: tmp_path)
    assert (load_hierarchy("hpo").name, len(load_hierarchy("hpo"))) == ("hpo", 2)
    assert load_hierarchy("icd-10").name == "icd-10"


def test_hpo_of_january_2025() -> None:
    need_installed("hpo")
    h = load_hierarchy("hpo")
    assert isinstance(h, Hierarchy)
    assert (len(h), len(h.edges)) == (19_034, 23_392)  # and 450 obsolete terms
    assert [h.labels[root] for root in h.roots.tolist()] == ["All"]


@pytest.mark.parametrize("spec", ["~nosuchuser-at-all/x", "x" * 300, "x" * 5000 + ".tsv", "a\0b"])
def test_names_that_the_system_refuses(spec: str) -> None:
    with pytest.raises(HierarchyError, match=r"cannot read|neither a file"):
        load_hierarchy(spec)
