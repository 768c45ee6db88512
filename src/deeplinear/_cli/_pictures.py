"""Pictures of results, drawn into files.

Matplotlib is loaded only here, when something is drawn: it takes about as long as all the rest of the program.
"""

from pathlib import Path
from typing import Any

from deeplinear import Ensemble


def save_picture(path: Path, result: Any, networks: Ensemble | None = None) -> None:
    """Draw a result, or its curvature over that of networks, and write the picture."""
    from deeplinear._plots.geometry import plot_sharpness
    from deeplinear._plots.plot import plot
    from deeplinear._plots.style import save_figure

    save_figure(plot(result) if networks is None else plot_sharpness(result, experiment=networks), path)
