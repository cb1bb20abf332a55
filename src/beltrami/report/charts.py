"""Charts as self-contained SVG: lines with intervals, means side by side, histograms, heat maps.

Each function returns a complete SVG element, drawn for light and dark, that needs no script. Every
text may be anything a user typed. What a chart cannot show (a value that is not finite, or not
positive on a log axis) leaves a gap and is counted in a note below: a report of a run that went
wrong is still a report.
"""

from beltrami.report.bins import histogram
from beltrami.report.dots import Estimate, Group, dot_chart
from beltrami.report.heat import heat_map
from beltrami.report.lines import Series, line_chart

__all__ = [
    "Estimate",
    "Group",
    "Series",
    "dot_chart",
    "heat_map",
    "histogram",
    "line_chart",
]
