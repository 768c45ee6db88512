"""Ask pyright how much of what the package offers has a known type, and fail below a bound.

    python tools/types_complete.py PYRIGHT

Runs in an environment in which the package is installed, and in a folder where there is no other. Names that need
PyTorch count where it is installed.
"""

import importlib.util
import json
import subprocess
import sys

LEAST = 0.98


def main() -> int:
    """Print the score and what lacks a type."""
    command = [sys.argv[1], "--verifytypes", "deeplinear", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)["typeCompleteness"]
    exported = [symbol for symbol in report["symbols"] if symbol["isExported"]]
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed, so that deeplinear.torch is left out")
        exported = [symbol for symbol in exported if not symbol["name"].startswith("deeplinear.torch.")]
    unknown = [symbol["name"] for symbol in exported if not symbol["isTypeKnown"]]
    score = 1.0 - len(unknown) / len(exported)
    print(*unknown, f"types are complete for {100 * score:.1f} % of {len(exported)} names", sep="\n")
    return int(score < LEAST)


if __name__ == "__main__":
    raise SystemExit(main())
