"""Tables of vectors from many sources: files, models, and names in the data catalogue.

`open_vectors` opens one; what it gives is read in blocks or by rows, never all at once where the
format allows it. `open_unembedding` opens the output table of a language model. Nothing here ever
unpickles.
"""

from beltrami.data.vectors.source import list_vectors, open_vectors
from beltrami.data.vectors.table import Vectors, VectorsError
from beltrami.data.vectors.unembedding import Unembedding, open_unembedding

__all__ = [
    "Unembedding",
    "Vectors",
    "VectorsError",
    "list_vectors",
    "open_unembedding",
    "open_vectors",
]
