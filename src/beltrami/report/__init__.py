"""Pictures and self-contained HTML pages for people: `disk` and `charts` draw, `page` lays out."""

from beltrami.lazy import lazy

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Cloud": "beltrami.report.explorer",
        "Page": "beltrami.report.page",
        "Picture": "beltrami.report.picture",
        "disk_svg": "beltrami.report.disk",
        "explorer_page": "beltrami.report.explorer",
        "render": "beltrami.report.page",
    },
)
