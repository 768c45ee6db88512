"""Ask pyright how much of what the package offers has a known type, and fail below a bound.

    python tools/types_complete.py PYRIGHT

Runs in an environment in which the package is installed, and in a folder where there is no other.
"""

import json
import subprocess
import sys

LEAST = 0.98


def main() -> int:
    """Print the score and what lacks a type."""
    command = [sys.argv[1], "--verifytypes", "deeplinear", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)["typeCompleteness"]
    for symbol in report["symbols"]:
        if symbol["isExported"] and not symbol["isTypeKnown"]:
            print(symbol["name"])
    score = report["completenessScore"]
    print(f"types are complete for {100 * score:.1f} % of what deeplinear offers")
    return int(score < LEAST)


if __name__ == "__main__":
    raise SystemExit(main())
