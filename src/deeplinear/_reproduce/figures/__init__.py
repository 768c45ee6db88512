"""The paper's figures, one short definition for each panel."""

from deeplinear._reproduce.figures import fig1, fig2, fig3, fig4, fig5, fig6, fig7, fig_a1, fig_a2, fig_a3, table
from deeplinear._reproduce.panel import Panel

PANELS: dict[str, Panel] = {
    panel.id: panel
    for figure in (fig1, fig2, fig3, fig4, fig5, fig6, fig7, fig_a1, fig_a2, fig_a3, table)
    for panel in figure.PANELS
}
"""All panels by id, in the order of the paper."""

COLUMNS = {"1": 3, "2": 1, "3": 2, "4": 3, "5": 1, "6": 3, "7": 1, "A1": 1, "A2": 2, "A3": 1, "T1": 1}
"""How many panels stand side by side in each figure of the paper."""

TITLES = {
    "1": "Width and depth of multilayer networks",
    "2": "Learning rates across widths",
    "3": "Data sets and batches",
    "4": "Residual networks",
    "5": "Learning rates across depths",
    "6": "Power-law data",
    "7": "Learning rates across widths, power-law data",
    "A1": "Largest stable learning rates",
    "A2": "First steps of online SGD",
    "A3": "Exponents of hard tasks",
    "T1": "Cost",
}
"""What each figure is about."""
