"""Bounded inputs in files: which they are, in which order, and the batches and malformed records they hold."""

from tidegate.files.batches import Piece, Place, check_columns, pieces_of, read_table
from tidegate.files.listing import Files, files_of
from tidegate.files.malformed import Malformed, Rejects

__all__ = ["Files", "Malformed", "Piece", "Place", "Rejects", "check_columns", "files_of", "pieces_of", "read_table"]
