import json
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data.edge_json import read_edge_json
from beltrami.data.edge_list import read_edge_list, write_edge_list
from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.load import load_hierarchy
from beltrami.data.text import MAX_LINE, DataWarning

# tmp_path stays the same for all examples of a property; every example writes its file anew.
same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def edges_of(h: Hierarchy) -> set[tuple[str, str]]:
    return {(h.labels[child], h.labels[parent]) for child, parent in h.edges.tolist()}


def read(folder: Path, content: str | bytes, name: str = "t.tsv") -> Hierarchy:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_edge_json(file) if name.endswith(".json") else read_edge_list(file)


TWO_PARENTS = {("b", "a"), ("c", "a"), ("d", "b"), ("d", "c")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.tsv", "b\ta\nc\ta\nd\tb\nd\tc\n"),
        ("t.tsv", "\ufeffchild\tparent\r\nb\ta\r\nc\ta\r\n\r\nd\tb\r\nd\tc"),
        ("t.tsv", "b\ta\rc\ta\rd\tb\rd\tc"),
        ("t.csv", '# made by hand\nb,a\n"c","a"\n d , b \nd,c'),
        ("t.csv", '\ufeff"child";"parent"\r\n"b";"a"\r\nc;a\r\nd;b\r\nd;c\r\n'),
        ("t.csv", "Parent,Child\na,b\na,c\nb,d\nc,d"),
        ("t.csv", "weight,source,target\n1,a,b\n1,a,c\n.5,b,d\n.5,c,d"),
        ("t.csv", "id1,id2,weight\nb,a,1\nc,a,1\nd,b,1\nd,c,1"),
        ("t.csv", "node,parent\nb,a\nc,a\nd,b\nd,c"),
        ("t.csv", "name,id,parent_id,parent\na,1,,\nb,2,1,A\nc,3,1,A\nd,4,2,B\nd,4,3,C"),
        ("t.csv", "id,since,parent\nb,1,a\nc,2,a\nd,3,b\nd,4,c"),
        ("t.tsv", "parent_id\tid\na\tb\na\tc\nb\td\nc\td"),
        ("t.csv", "Hyponym,Hypernym\nb,a\nc,a\nd,b\nd,c"),
        ("t.tsv", "child\tsince, or so\tparent\nb\t1\ta\nc\t2\ta\nd\t3\tb\nd\t4\tc"),
        ("t.edges", "a\tb\na\tc\nb\td\nc\td"),
        ("t.json", '[["b","a"],["c","a"],["d","b"],["d","c"]]'),
        ("t.json", '[{"child":"b","parent":"a"},{"child":"c","parent":"a","x":1},'
                   '{"source":"b","target":"d"},{"child":"d","parent":"c"}]'),
        ("t.json", '{"nodes":[{"id":0,"label":"a"},{"id":1,"label":"b"},{"id":"x","name":"c"},'
                   '{"id":"d"}],"links":[{"source":0,"target":1},{"source":0,"target":"x"},'
                   '{"source":1,"target":"d"},{"source":"x","target":"d"}]}'),
        ("t.json", '{"nodes":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"}],"edges":[{"source":"a",'
                   '"target":"b"},{"source":"a","target":"c"},{"source":"b","target":"d"},'
                   '{"source":"c","target":"d"}]}'),
    ],
)  # fmt: skip
def test_accepted_forms_give_the_same_hierarchy(tmp_path: Path, name: str, text: str) -> None:
    h = read(tmp_path, text, name)
    assert edges_of(h) == TWO_PARENTS
    assert len(h) == 4
    assert h.name == "t"


@pytest.mark.parametrize("name", ["t.edges", "t.txt"])
def test_graph_files_go_from_source_to_target(tmp_path: Path, name: str) -> None:
    h = read(tmp_path, "% a comment\n# and one more\n0 1\n 0  2 \n1 3\n", name)
    assert edges_of(h) == {("1", "0"), ("2", "0"), ("3", "1")}


def test_nested_json(tmp_path: Path) -> None:
    text = '{"name":"a","children":[{"name":"b","children":[{"name":"d"}]},{"name":3}],"x":1}'
    h = read(tmp_path, text, "t.json")
    assert h.labels == ("a", "b", "d", "3")
    assert edges_of(h) == {("b", "a"), ("d", "b"), ("3", "a")}


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("t.tsv", "b\ta\nc\ta\n\nb\ta\nd\tb\nd\tc\nd\tc", "line 4, which is on line 1, too"),
        (
            "t.json",
            '[["b","a"],["b","a"],["c","a"],["b","a"],["d","b"],["d","c"]]',
            "entry 2, which is on entry 1, too",
        ),
    ],
)
def test_repeated_edges_are_counted_and_used_once(
    tmp_path: Path, name: str, text: str, places: str
) -> None:
    message = f"2 edges are repeated and used once, first 'b' -> 'a' on {places}"
    with pytest.warns(DataWarning, match=rf"t\..*: {message}$"):
        h = read(tmp_path, text, name)
    assert edges_of(h) == TWO_PARENTS
    with pytest.raises(HierarchyError, match=rf"{message}; correct it"):
        load_hierarchy(tmp_path / name, strict=True)
    long = json.dumps([["x" * 30_000, "a"]] * 2)
    with pytest.warns(DataWarning, match="1 edge is .*xxx…") as caught:
        read(tmp_path, long, "t.json")
    assert len(str(caught[0].message)) < 600


def test_places_in_errors_are_right_after_repeated_edges(tmp_path: Path) -> None:
    with (
        pytest.warns(DataWarning, match="1 edge is"),
        pytest.raises(HierarchyError, match="lines 4, 5: the parents form a cycle"),
    ):
        read(tmp_path, "c\td\nd\te\nc\td\na\tb\nb\ta\n")


@pytest.mark.parametrize(
    "text", ["child,parent\na,\nb,a\nlone,\n", "a;\nb;a\nlone;\n", "b,a\na,\nlone,"]
)
def test_roots_may_have_lines_with_an_empty_parent(tmp_path: Path, text: str) -> None:
    h = read(tmp_path, text, "t.csv")
    assert edges_of(h) == {("b", "a")}
    assert {h.labels[root] for root in h.roots.tolist()} == {"a", "lone"}
    write_edge_list(h, tmp_path / "again.tsv")
    again = read_edge_list(tmp_path / "again.tsv")
    assert (set(again.labels), edges_of(again)) == (set(h.labels), edges_of(h))


def test_a_first_row_of_two_labels_is_data(tmp_path: Path) -> None:
    assert ("child", "person") in edges_of(read(tmp_path, "child\tperson\nperson\tbeing"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: it has no edge"),
        ("\n \n# only a comment\n", "is empty"),
        ("child\tparent\n", "is empty"),
        ("b\ta\nc", "line 2: expected 2 tab-separated columns .* found 1: 'c'"),
        ("b a\nc a", "line 1: expected 2 comma-separated columns .* found 1"),
        ("1 2\n3", "line 2: expected 2 space-separated columns"),
        ("b,a,1\nc,a,1", "line 1: expected 2 .* header row that names child and parent"),
        ("child,ancestor,w\nb,a,1", "line 1: there is no column 'parent'.*child, ancestor, w"),
        ("w,target,x\nb,a,1", "line 1: there is no column 'source'"),
        ("id,title,parent\n1,b,a\n2,c,1\n3,d,b", "may be those of 'id' or of 'title'"),
        ("id,name,parent\n1,b,a", "line 1: the parents may be those of 'id' or of 'name'"),
        ("child,parent,w\nb,a", "line 2: expected 3 .*as in the header on line 1.*found 2"),
        ("child,child,parent\nb,b,a", "line 1: two columns are called 'child'"),
        ("b\ta\n\tb", "line 2: the child is empty"),
        ("b\ta\nb\tb", "line 2: 'b' is its own parent"),
        ("x\ta\na\tb\nb\ta\n", "lines 2, 3: the parents form a cycle: 'a' -> 'b' -> 'a'"),
        (b"b\ta\nc\tb\xeate\n", "line 2: not UTF-8 text .byte 3 of the line"),
        (b"b\ta\nc\t\0a\n", "line 2: holds a NUL byte"),
        ("b\ta\n".encode("utf-16"), "line 1: not UTF-8"),
        (b'b\ta\n"' + b"x" * 200_000 + b'"\tb', "line 2: field larger than field limit"),
        (b"b\ta\n" + b"x" * MAX_LINE + b"\ta\n", "line 2: longer than 1048576 characters"),
    ],
)  # fmt: skip
def test_bad_text_names_the_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("[]", "is empty"),
        ('[["b", "a"],\n ["c" "a"]]', "line 2, column 7: not JSON"),
        ('[["b", "a"], ["c"]]', r"entry 2: expected pairs .* found '\[\"c\"\]'"),
        ('[["b", "a"], ["c", null]]', "entry 2: the parent must be text or a whole number"),
        ('[["b", "a"], ["c", ""]]', "entry 2: the parent is empty"),
        ('[["b", "a"], ["c", true]]', "entry 2: the parent must be text or a whole number"),
        ('[["b", "a"], ["a", "b"]]', "entries 1, 2: the parents form a cycle"),
        ('[["b", "b"]]', "entry 1: 'b' is its own parent"),
        ('[["b\\u0000", "a"]]', "NUL"),
        ('[["\\ud800", "a"]]', "half a character"),
        (b'["a",\n "\xff"]', "line 2: not UTF-8 text .byte 2"),
        (b'["a",\n "\0"]', "line 2: holds a NUL"),
        ("3", "expected pairs"),
        ('{"a": 1}', "expected pairs"),
        ('{"nodes": []}', 'no list of "links"'),
        ('{"nodes": [], "links": []}', "is empty"),
        ('{"nodes": [{"label": "a"}], "links": []}', 'node 1: a node needs an "id"'),
        ('{"nodes": [{"id": 1}, {"id": "1"}], "links": []}', "node 2: the id '1' is taken"),
        ('{"nodes": [{"id": 1, "label": "a"}, {"id": 2, "label": "a"}], "links": []}',
         "node 2: the label 'a' is taken"),
        ('{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}',
         "entry 1: the target '2' is the id of no node"),
        ('{"nodes": [{"id": 1}], "links": [{"source": 1}]}', 'needs "source" and "target"'),
        ('{"name": "a", "children": [{"name": "b"}, {"name": "a"}]}',
         "entry 3: the name 'a' is taken by entry 1"),
        ('{"name": "a", "children": [{}]}', 'entry 2: a node needs a "name"'),
        ('{"name": "a", "children": {"b": 1}}', "must be a list"),
        ('{"name":"a","children":[' * 100_000, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("[[" + "1" * 5000 + ', "a"]]', "not JSON that can be used"),
    ],
)  # fmt: skip
def test_bad_json_names_the_place(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read(tmp_path, content, "t.json")


def test_a_huge_line_fails_without_being_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.tsv"
    with file.open("wb") as out:
        out.write(b"b\ta\nx")
        out.truncate(1 << 30)  # a gigabyte that takes no room
    tracemalloc.start()
    with pytest.raises(HierarchyError, match="line 2"):
        read_edge_list(file)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_a_huge_json_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("beltrami.data.text.MAX_WHOLE_FILE", 1 << 20)
    with pytest.raises(HierarchyError, match=r"larger than 1 MiB.*TSV"):
        read(tmp_path, " " * (1 << 20) + "[]", "t.json")


def test_unreadable_paths(tmp_path: Path) -> None:
    for reader in (read_edge_list, read_edge_json):
        with pytest.raises(HierarchyError, match="No such file"):
            reader(tmp_path / "missing")
        with pytest.raises(HierarchyError, match="directory"):
            reader(tmp_path)


labels = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r\0"), min_size=1
).filter(lambda label: label == label.strip())


@same_folder
@given(names=st.lists(labels, min_size=2, max_size=6, unique=True), data=st.data())
def test_round_trip_with_any_labels(tmp_path: Path, names: list[str], data: st.DataObject) -> None:
    parents = [data.draw(st.integers(0, node - 1)) for node in range(1, len(names))]
    edges = torch.tensor(list(enumerate(parents, start=1)))
    written = Hierarchy("t", tuple(names), edges)
    write_edge_list(written, tmp_path / "t.tsv")
    again = read_edge_list(tmp_path / "t.tsv")
    assert edges_of(again) == edges_of(written)
    assert len(again) == len(written)


@pytest.mark.parametrize("label", ["b\nc", " b", "b\t"])
def test_labels_that_would_not_come_back_are_not_written(tmp_path: Path, label: str) -> None:
    with pytest.raises(HierarchyError, match="cannot stand in"):
        write_edge_list(Hierarchy("t", ("a", label), torch.tensor([[1, 0]])), tmp_path / "t.tsv")
    assert not list(tmp_path.iterdir())


@same_folder
@pytest.mark.filterwarnings("ignore::beltrami.data.text.DataWarning")
@given(content=st.binary() | st.text('ab"#%,\t\n\r 1').map(str.encode))
@pytest.mark.parametrize("name", ["t.tsv", "t.edges"])
def test_any_bytes_give_edges_or_a_named_error(tmp_path: Path, content: bytes, name: str) -> None:
    problem = ""
    try:
        assert len(read(tmp_path, content, name)) >= 1
    except HierarchyError as error:
        problem = str(error)
    assert not problem or name in problem


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b", "", "\0"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["id", "name", "label", "children", "nodes", "links", "source", "target",
                         "child", "parent"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@same_folder
@pytest.mark.filterwarnings("ignore::beltrami.data.text.DataWarning")
@given(value=json_values)
def test_any_json_gives_a_hierarchy_or_a_named_error(tmp_path: Path, value: object) -> None:
    problem = ""
    try:
        assert len(read(tmp_path, json.dumps(value), "t.json")) >= 1
    except HierarchyError as error:
        problem = str(error)
    assert not problem or "t.json" in problem


@pytest.mark.parametrize("depth", range(50, 1300, 50))
def test_no_depth_of_nesting_is_a_crash(tmp_path: Path, depth: int) -> None:
    with pytest.raises(HierarchyError):
        read(tmp_path, '[["b", "a"], ' + "[" * depth + "]" * depth + "]", "t.json")


@pytest.mark.parametrize("line", ['"c,a', 'c,"a', '"c"x,a'])
def test_a_quote_that_is_not_closed_names_its_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(HierarchyError, match=r"t\.csv, line 2: "):
        read(tmp_path, f"b,a\n{line}\n", "t.csv")
    assert edges_of(read(tmp_path, f'# x,"y\nb,a\n#{line}z\n', "t.csv")) >= {("b", "a")}


LONG = "x" * 30_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.tsv", f"{LONG}\t{LONG}\n"),
        ("t.tsv", f"{LONG}\ta\na\t{LONG}\n"),
        ("t.json", f'{{"nodes": [{{"id": "{LONG}"}}, {{"id": "{LONG}"}}], "links": []}}'),
    ],
)
def test_errors_quote_only_the_beginning_of_labels(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(HierarchyError, match="xxx…") as caught:
        read(tmp_path, text, name)
    assert len(str(caught.value)) < 600 + len(str(tmp_path))


@pytest.mark.parametrize("text", ["package,parent\nvim,editors\n", "parent;package\neditors;vim\n"])
def test_one_known_name_of_two_columns_makes_a_header(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.warns(DataWarning, match=r"line 1 \(.*\) is read as a header"):
        hierarchy = read_edge_list(path)
    assert hierarchy.labels == ("vim", "editors")
    assert hierarchy.edges.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("header", "warns"),
    [
        ("category,parent_category", True),
        ("category,parentCategory", True),
        ("Product,PARENT-ID", True),
        ("concept,broader term", True),
        ("Child Name,Parent Name", False),
        ("child_id,parent_id", False),
        ("Children of,Group", True),
    ],
)
@pytest.mark.parametrize("swap", [False, True])
def test_names_with_words_for_parents_or_children_make_a_header(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, header: str, warns: bool, swap: bool
) -> None:
    rows = [line.split(",") for line in (header, "lion,cat", "cat,animal")]
    text = "\n".join(",".join(reversed(row) if swap else row) for row in rows)
    assert edges_of(read(tmp_path, text, "t.csv")) == {("lion", "cat"), ("cat", "animal")}
    notes = [str(note.message) for note in recwarn]
    assert len(notes) == warns
    assert not notes or "is read as a header" in notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "single parent,parent\nparent,person",
        "stepchild,child\nchild,person",
        "apparent,transparent\nx,y",
        "grandchild,relative\nx,y",
        "parent,\nmother,parent",
        "id,name\nname,word",
    ],
)
@pytest.mark.filterwarnings("error")
def test_labels_with_such_words_are_data(tmp_path: Path, text: str) -> None:
    first = text.split("\n")[0].split(",")
    assert set(filter(None, first)) <= set(read(tmp_path, text, "t.csv").labels)


@pytest.mark.parametrize("header", ["id,path", "name,ID", "Category ID;Category Name"])
def test_a_header_without_parents_is_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(HierarchyError, match=r"line 1: no column of '.*' has parents; name child"):
        read(tmp_path, f"{header}\n1;x,y\n2,x;z")


IDS = "{}\n1,animal,\n2,cat,1\n3,lion,2\n4,dog,1\n"


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        (IDS.format("id,name,parent_id"), None),
        (IDS.format("id,name,parent"), None),
        (IDS.format("node_id,title,parent"), None),
        (IDS.format("category_id,category_name,parent_category_id"), None),
        (IDS.format("child_id,child_name,parent_id"), None),
        (IDS.format("taxonID,scientificName,parentNameUsageID"), None),
        ("id,name,parent\n1,animal,\n2,cat,animal\n3,lion,cat\n4,dog,animal\n", None),
        ("id,name,Parent Name\n2,cat,animal\n3,lion,cat\n4,dog,animal\n", None),
        ("author_id,item_id,name,parent_id\n9,1,animal,\n2,2,cat,1\n9,3,lion,2\n8,4,dog,1", None),
        ("name,code,parent\ncat,a,animal\nlion,b,cat\ndog,c,animal", None),
        ("name,code,parent\nlion,1,cat\ndog,2,wolf", {("lion", "cat"), ("dog", "wolf")}),
        ("id,name,parent_id\n2,cat,7\n3,,7\n", {("cat", "7"), ("3", "7")}),
        (
            "id,name,parent_id\n1,x,\n2,x,1\n3,7,1\n4,d,7\n",
            {("x (2)", "x (1)"), ("7 (3)", "x (1)"), ("d", "7 (7)")},
        ),
    ],
)
def test_tables_of_ids_are_labelled_by_name(
    tmp_path: Path, text: str, edges: set[tuple[str, str]] | None
) -> None:
    cats = {("cat", "animal"), ("lion", "cat"), ("dog", "animal")}
    assert edges_of(read(tmp_path, text, "t.csv")) == (edges or cats)


def test_darwin_core_with_columns_of_ranks_has_its_parents(tmp_path: Path) -> None:
    file = tmp_path / "taxon.txt"
    file.write_text(
        "taxonID\tacceptedNameUsageID\tparentNameUsageID\tscientificName\ttaxonRank\tfamily\tgenus\n"
        "7\t7\t\tFelidae\tfamily\tFelidae\t\n"
        "8\t8\t7\tFelis\tgenus\tFelidae\tFelis\n"
        "9\t9\t8\tFelis catus\tspecies\tFelidae\tFelis\n"
    )
    h = load_hierarchy(file, strict=True)
    assert edges_of(h) == {("Felis", "Felidae"), ("Felis catus", "Felis")}
    assert h.rank_counts == {"family": 1, "genus": 1, "species": 1}


def test_columns_that_are_not_known_say_how_to_name_them(tmp_path: Path) -> None:
    text = "Category,Subcategory,Product\nfood,bread,rye\n"
    with pytest.raises(
        HierarchyError, match=r"line 1: .*call the columns 'level 1', 'level 2'"
    ) as e:
        read(tmp_path, text, "t.csv")
    assert "\n" not in str(e.value)
    named = text.replace("Category,Subcategory,Product", "level 1,level 2,level 3")
    (tmp_path / "t.csv").write_text(named)
    assert load_hierarchy(tmp_path / "t.csv", strict=True).labels == ("food", "bread", "rye")


@pytest.mark.parametrize("value", ["NA", "NaN", "nan", "None", "null", "NULL"])
def test_missing_parents_are_empty(tmp_path: Path, value: str) -> None:
    text = f"child,parent\nanimal,{value}\ncat,animal\nrock,{value}\n"
    message = f"missing values are read as empty parents: 2, first '{value}' on line 2"
    with pytest.warns(DataWarning, match=message):
        h = read(tmp_path, text, "t.csv")
    assert edges_of(h) == {("cat", "animal")}
    assert set(h.labels) == {"animal", "cat", "rock"}
    with pytest.warns(DataWarning, match="empty parents: 1, first"):
        h = read(tmp_path, f"id,name,parent_id\n1,animal,{value}\n2,cat,1\n", "t.csv")
    assert h.labels == ("animal", "cat")


@pytest.mark.filterwarnings("error")
def test_a_node_may_be_called_like_a_missing_value(tmp_path: Path) -> None:
    edges = {("Windhoek", "NA"), ("NA", "Africa")}
    assert edges_of(read(tmp_path, "Windhoek,NA\nNA,Africa\n", "t.csv")) == edges
    named = "id,name,parent\nW,Windhoek,NA\nNA,Namibia,AF\nAF,Africa,\n"
    assert edges_of(read(tmp_path, named, "t.csv")) == {
        ("Windhoek", "Namibia"),
        ("Namibia", "Africa"),
    }
    write_edge_list(Hierarchy("t", ("b", "null"), torch.tensor([[0, 1]])), tmp_path / "t.tsv")
    assert edges_of(read_edge_list(tmp_path / "t.tsv")) == {("b", "null")}


tables = st.lists(
    st.lists(st.sampled_from(["", "1", "2", "a", "b", "NA", "id", "x y"]), min_size=2, max_size=4),
    max_size=6,
)
headers = st.lists(
    st.sampled_from(["id", "name", "parent", "parent_id", "Child", "taxonID", "a", "rank", "path"]),
    min_size=2,
    max_size=4,
)


@same_folder
@pytest.mark.filterwarnings("ignore::beltrami.data.text.DataWarning")
@given(header=headers, rows=tables)
def test_any_table_gives_a_hierarchy_or_one_line(
    tmp_path: Path, header: list[str], rows: list[list[str]]
) -> None:
    problem = ""
    try:
        assert len(read(tmp_path, "\n".join(map(",".join, [header, *rows])), "t.csv")) >= 1
    except HierarchyError as error:
        problem = str(error)
    assert not problem or ("t.csv" in problem and "\n" not in problem)
