"""Tables of vectors from many sources: files, models, and names in the data catalogue.

`open_vectors` opens one; what it gives is read in blocks or by rows, never all at once where the
format allows it. Nothing here ever unpickles.
"""

from beltrami.data.vectors.source import list_vectors, open_vectors
from beltrami.data.vectors.table import Vectors, VectorsError

__all__ = ["Vectors", "VectorsError", "list_vectors", "open_vectors"]
