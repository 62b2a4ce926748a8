"""Figures that a notebook shows."""

import io

from matplotlib.figure import Figure

_DPI = 100  # of a picture in a notebook, where it is as wide as the text: as Matplotlib's own default


class ShownFigure(Figure):
    """A figure that a notebook shows as a picture where nobody has switched on the pictures of pyplot."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png", dpi=_DPI)
        return picture.getvalue()
