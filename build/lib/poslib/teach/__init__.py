"""What a page needs: claims, figures, pictures, exercises."""

from poslib.teach.claims import claim
from poslib.teach.exercises import check
from poslib.teach.figures import figure
from poslib.teach.plots import picture

__all__ = ["check", "claim", "figure", "picture"]
