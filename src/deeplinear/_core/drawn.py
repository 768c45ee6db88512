"""Results that draw themselves; drawing is imported when it is asked for, since it is slow to import."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Drawn:
    """A result that draws itself, and that notebooks show as a small picture and a table.

    Its ``repr`` is what it prints, unless it has one of its own: a dataclass would begin with its whole problem.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "__str__" in vars(cls) and "__repr__" not in vars(cls):
            # Not an assignment, which type checkers take for a second declaration that every subclass leaves unclear.
            setattr(cls, "__repr__", cls.__str__)  # noqa: B010

    def _repr_html_(self) -> str:
        """Return a small picture and a table."""
        from deeplinear._plots.html import html_of

        return html_of(self)

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw it.

        Parameters
        ----------
        ax
            Axes to draw into, of which only the main panel is then drawn; a new figure by default.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, which has ``savefig``.
        """
        from deeplinear._plots.plot import plot

        return plot(self, ax=ax)
