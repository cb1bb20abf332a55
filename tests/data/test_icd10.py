from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beltrami.data.hierarchy import Hierarchy, HierarchyError
from beltrami.data.icd10 import read_icd10
from beltrami.data.load import load_hierarchy
from beltrami.data.text import MAX_LINE
from tests.data.installed import need_installed

WHO = """\ufeff<icd_10_v2019>
  <item type="chapter"><name>I</name><description>Certain &amp; infectious</description>
    <item type="block"><name>A00-A09</name><description>Intestinal</description>
      <item type="category"><name>A00</name><description>Cholera</description>
      </item>
    </item>
  </item>
  <item type="chapter"><name>II</name><description>Neoplasms</description></item>
</icd_10_v2019>"""

US = """<?xml version="1.0" encoding="utf-8"?>
<ICD10CM.tabular>
  <version>2026</version>
  <introduction><introSection><title>Not a code</title></introSection></introduction>
  <chapter><name>19</name><desc>Injury</desc>
    <includes><note>a note</note></includes>
    <sectionIndex><sectionRef first="S00" last="S09" id="S00-S09">Head</sectionRef></sectionIndex>
    <section id="S00-S09"><desc>Head</desc>
      <diag><name>S00</name><desc>Superficial</desc>
        <sevenChrDef><note>which encounter</note>
          <extension char="A">initial encounter</extension>
          <extension char="D">subsequent
            encounter</extension>
          <extension char="Q">never used</extension></sevenChrDef>
        <diag><name>S00.0</name><desc>Scalp</desc>
          <diag><name>S00.01</name><desc>Abrasion</desc></diag></diag>
      </diag>
      <diag><name>S01</name><desc>Open</desc></diag>
    </section>
    <section id="S10"><desc>Neck</desc><diag><name>S10</name><desc>Neck</desc></diag></section>
  </chapter>
</ICD10CM.tabular>"""


def write(folder: Path, text: str) -> Path:
    path = folder / "icd.xml"
    path.write_text(text, encoding="utf-8")
    return path


def edges_of(h: Hierarchy) -> set[tuple[str, str]]:
    return {(h.labels[child], h.labels[parent]) for child, parent in h.edges.tolist()}


def test_the_form_of_the_who(tmp_path: Path) -> None:
    h = read_icd10(write(tmp_path, WHO))
    assert edges_of(h) == {
        ("A00-A09 Intestinal", "I Certain & infectious"),
        ("A00 Cholera", "A00-A09 Intestinal"),
    }
    assert [h.labels[root] for root in h.roots.tolist()] == [
        "I Certain & infectious",
        "II Neoplasms",
    ]


US_EDGES = {
    ("S00-S09 Head", "19 Injury"),
    ("S00 Superficial", "S00-S09 Head"),
    ("S00.0 Scalp", "S00 Superficial"),
    ("S00.01 Abrasion", "S00.0 Scalp"),
    ("S01 Open", "S00-S09 Head"),
    ("S10 Neck (line 20)", "19 Injury"),
    ("S10 Neck (line 20)'", "S10 Neck (line 20)"),
}


def test_the_form_of_the_us_without_a_list_of_codes(tmp_path: Path) -> None:
    assert edges_of(read_icd10(write(tmp_path, US))) == US_EDGES


def test_a_list_of_codes_adds_those_of_seven_characters(tmp_path: Path) -> None:
    codes = "S00.01XA one\nS0001XD two\nS01XXXA below no definition\n"
    (tmp_path / "code-list-2026.txt").write_text(codes)
    longer = {
        ("S00.01XA Abrasion, initial encounter", "S00.01 Abrasion"),
        ("S00.01XD Abrasion, subsequent encounter", "S00.01 Abrasion"),
    }
    assert edges_of(read_icd10(write(tmp_path, US))) == US_EDGES | longer


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not XML: no element found"),
        ("<a><item></a>", "not XML: mismatched tag: line 1"),
        ("<a/>", "has none of the elements chapter, diag, item, section"),
        ("<a>\n<item><description>x</description></item></a>", "line 2: an element without a name"),
        ('<!DOCTYPE a [<!ENTITY x "y">]>\n<a><item><name>&x;</name></item></a>', "<!DOCTYPE"),
        ('<!DOCTYPE a SYSTEM "/etc/passwd"><a/>', "line 1: .*<!DOCTYPE"),
        ('<?xml version="1.0" encoding="nonsense"?><a/>', "not XML"),
        ("<a><item><name>" + "x" * (MAX_LINE + 1) + "</name></item></a>", "longer than 1 MiB"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        read_icd10(write(tmp_path, text))


def test_unreadable_and_huge_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HierarchyError, match="No such file"):
        read_icd10(tmp_path / "missing.xml")
    monkeypatch.setattr("beltrami.data.icd10.MAX_WHOLE_FILE", 1 << 20)
    with pytest.raises(HierarchyError, match="larger than 1 MiB"):
        read_icd10(write(tmp_path, "<a>" + " " * (1 << 20)))


pieces = st.sampled_from(
    [
        "<a>",
        "</a>",
        "<item>",
        "</item>",
        "<name>",
        "</name>",
        "A",
        "<diag id='B'>",
        "</diag>",
        "&x;",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary() | st.lists(pieces).map(lambda parts: "".join(parts).encode()))
def test_any_bytes_give_codes_or_a_named_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "icd.xml"
    path.write_bytes(content)
    problem = ""
    try:
        assert len(read_icd10(path)) >= 1
    except HierarchyError as error:
        problem = str(error)
    assert not problem or "icd.xml" in problem


@pytest.mark.parametrize(("name", "nodes"), [("icd-10-cm", 98_505), ("icd-10", 12_542)])
def test_the_published_classifications(name: str, nodes: int) -> None:
    need_installed(name)
    h = load_hierarchy(name)
    assert (len(h), len(h.roots)) == (nodes, 22)
    assert "A00 Cholera" in h.labels
