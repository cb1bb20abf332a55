"""Pictures and self-contained HTML pages for people: `disk` and `charts` draw, `page` lays out."""
