"""Examples in docstrings are tests; those of modules that need PyTorch are left out where it is missing."""

import importlib.util

NEED_PYTORCH = ["deeplinear/torch.py", "deeplinear/_torch/*.py"]
collect_ignore_glob = NEED_PYTORCH if importlib.util.find_spec("torch") is None else []
