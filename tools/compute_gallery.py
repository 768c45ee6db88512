"""Compute results of the gallery and draw nothing, on a machine that may lack what drawing needs.

    python tools/compute_gallery.py DIR [--scale full] [--device cuda] [IDS]...

It takes NumPy, SciPy, xarray with h5netcdf, psutil, threadpoolctl and tomli-w, for a device PyTorch and
array-api-compat, and neither matplotlib nor typer. Several may run at the same time with different IDS and one DIR, but
only one of them on a graphics card, since each takes all the memory that is free there. Large networks gain by a card,
figures 1, 3, 4 and A2; the rest is as fast on a dozen cores. ``deeplinear reproduce --scale full --out DIR`` then draws
what is in DIR/results.
"""

import argparse
import sys
import time
from pathlib import Path

from deeplinear._reproduce import SCALES
from deeplinear._reproduce.compute import compute, plan_panels


def main() -> None:
    """Read the arguments, and compute panel by panel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("ids", nargs="*", metavar="IDS")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_intermixed_args()
    for plan in plan_panels(options.ids or None, options.scale):
        start = time.perf_counter()
        compute([plan], options.folder / "results", options.device, None)
        print(f"{plan.panel.id}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
