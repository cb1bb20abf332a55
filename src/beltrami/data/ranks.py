"""The ranks that biology uses, and their order."""

from __future__ import annotations

import re

MOST_LEVELS = 30  # columns that may be called level 0, level 1, ...

# From the top down, as NCBI and the Catalogue of Life order them.
RANKS = tuple(
    """
    superdomain, domain, realm, superkingdom, kingdom, subkingdom, infrakingdom, superphylum,
    phylum, division, subphylum, subdivision, infraphylum, superclass, class, subclass,
    infraclass, supercohort, cohort, subcohort, superorder, order, suborder, infraorder,
    parvorder, superfamily, family, subfamily, supertribe, tribe, subtribe, genus, subgenus,
    section, subsection, series, subseries, species group, species subgroup, species,
    subspecies, variety, varietas, form, forma, strain, isolate
    """.strip()
    .replace("\n    ", " ")
    .split(", ")
) + tuple(f"level {number}" for number in range(MOST_LEVELS))


def plain_rank(text: str) -> str:
    """A rank's name without case, spaces, underscores and hyphens."""
    return re.sub(r"[\s_#-]", "", text.lower())


PLACE_OF_RANK = {plain_rank(rank): place for place, rank in enumerate(RANKS)}
