"""Measure speed and memory, and write ``benchmarks/results.md`` with its pictures.

python benchmarks/run.py [names of sections]

Only the named sections are measured, all by default; the numbers of the others are kept from ``results.json``, where
each section is stored as soon as it is done. ``--page`` measures nothing and writes the page again.
"""

import argparse
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from deeplinear._core.files import write_atomically
from deeplinear._core.threads import one_blas_thread
from measure import circumstances
from sections import (
    dense,
    exact,
    explorer,
    geometry,
    growth,
    horizons,
    learning_rates,
    lists,
    noise,
    panels,
    peer_iteration,
    programs,
    residual,
    simulation,
    table,
    tolerances,
)

HERE = Path(__file__).parent
STORE, PAGE = HERE / "results.json", HERE / "results.md"
SECTIONS: dict[str, ModuleType] = {
    "dense": dense,
    "panels": panels,
    "horizons": horizons,
    "noise": noise,
    "growth": growth,
    "residual": residual,
    "programs": programs,
    "geometry": geometry,
    "lists": lists,
    "learning_rates": learning_rates,
    "explorer": explorer,
    "peer": peer_iteration,
    "simulation": simulation,
    "exact": exact,
    "tolerances": tolerances,
}
"""Each measures numbers, and shows them as headlines, and as lines of Markdown with a picture."""
OTHERS = (
    "peers.md",
    "honesty.md",
    "honesty_condensed.md",
    "honesty_coarse.md",
    "best_rate.md",
    "best_rate_programs.md",
    "device.md",
    "verdicts.md",
    "fits.md",
)
"""Sections that other scripts write, since they need hours, programs of others or another machine."""


def page(results: dict[str, Any]) -> str:
    """Write everything that has been measured as one page of Markdown; draws its pictures."""
    lines = [
        "# Benchmarks",
        "",
        "`make bench` measures all of this again. Everything runs on one thread; times are processor time, the least "
        "of several repeats after one to warm up; what is compared is measured in turns within one run.",
        "",
    ]
    lines += headlines(results)
    for name, section in SECTIONS.items():
        if name in results:
            stored = results[name]
            lines += [f"## {section.TITLE}", "", *section.show(stored["data"]), ""]
            where = stored["circumstances"]
            lines += [f"{where['date']}, {where['machine']}; load {where['load']} before the run.", ""]
    for name in OTHERS:
        if (HERE / name).exists():
            lines += [(HERE / name).read_text().rstrip(), ""]
    return "\n".join(lines)


def headlines(results: dict[str, Any]) -> list[str]:
    """One number or two of every section, as a table."""
    measured = (section.headlines(results[name]["data"]) for name, section in SECTIONS.items() if name in results)
    return table(["what", "measured"], (row for rows in measured for row in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure speed and memory and write benchmarks/results.md.")
    parser.add_argument("sections", nargs="*", metavar="section", help=f"any of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--page", action="store_true", help="measure nothing, only write the page from results.json")
    chosen = parser.parse_args()
    for name in chosen.sections:
        if name not in SECTIONS:
            parser.error(f"section must be one of {', '.join(SECTIONS)}, got {name}")
    results: dict[str, Any] = json.loads(STORE.read_text()) if STORE.exists() else {}
    for name in [] if chosen.page else chosen.sections or SECTIONS:
        print(f"{name} ...", end=" ", flush=True)
        start, where = time.perf_counter(), circumstances()
        with one_blas_thread():
            results[name] = {"circumstances": where, "data": SECTIONS[name].measure()}
        write_atomically(STORE, lambda temporary: temporary.write_text(json.dumps(results, indent=1) + "\n"))
        print(f"{time.perf_counter() - start:.0f} s", flush=True)
    text = page(results)
    write_atomically(PAGE, lambda temporary: temporary.write_text(text))
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
