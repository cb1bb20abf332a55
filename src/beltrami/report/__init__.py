"""Pictures and self-contained HTML pages for people: `disk` draws, `page` lays out."""
