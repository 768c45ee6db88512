"""Sharpness, landscapes and spectra of weights against a plain solution."""

from typing import Any

import deeplinear as dl
from measure import race
from pictures import COLORS, picture
from sections import rounded, seconds, table

TITLE = "Geometry: curvature, landscapes and spectra of weights"

PROBLEM = dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.02), steps=200)

WORKS = {
    "solve": lambda: dl.solve(PROBLEM, method="dense"),
    "sharpness, 16 directions at 10 times": lambda: dl.sharpness(PROBLEM, vectors=16),
    "tangent kernel, 16 directions at 10 times": lambda: dl.sharpness(PROBLEM, vectors=16, operator="kernel"),
    "landscape, 25 points of a line": lambda: dl.landscape(PROBLEM, "line"),
    "spectra of weights at 10 times": lambda: dl.weight_spectra(PROBLEM),
    "16 networks of D = 10^6, with their curvature at 3 times": lambda: dl.simulate(
        PROBLEM.first(40), 10**6, 16, record="losses", curvature=dl.Curvature([0, 20, 39])
    ),
}


def measure() -> dict[str, Any]:
    return race(WORKS)


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    names = list(WORKS)[1:5]
    ratios = "; ".join(rounded(data[name] / data["solve"]) for name in names)
    return [(f"T = 200, L = 3, time over `solve`: {'; '.join(names)}", ratios)]


def show(data: dict[str, Any]) -> list[str]:
    with picture("geometry") as (ax,):
        names = list(WORKS)[1:5]
        ax.barh(names, [data[name] / data["solve"] for name in names], color=COLORS[0])
        ax.invert_yaxis()
        ax.set(xlabel="time over solve")
    rows = ([name, seconds(data[name]), rounded(data[name] / data["solve"])] for name in WORKS)
    return [
        "L = 3, T = 200, full batch; the networks are trained for 40 steps. Every direction of the Hessian takes four "
        "rows of the equations, each as long as a step at that time.",
        "",
        "![Time of curvature, landscapes and spectra](images/geometry.png)",
        "",
        *table(["", "time", "over `solve`"], rows),
    ]
