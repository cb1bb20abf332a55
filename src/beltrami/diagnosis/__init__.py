"""`beltrami diagnose`: how tree-like data are, beside what they are to be compared with."""

from beltrami.lazy import lazy

__getattr__, __dir__ = lazy(
    __name__,
    {
        "DiagnoseConfig": "beltrami.diagnosis.config",
        "Diagnosis": "beltrami.diagnosis.diagnose",
        "ExploreConfig": "beltrami.diagnosis.explore.config",
        "open_source": "beltrami.diagnosis.source",
    },
)
