"""Results as JSON holds them."""

import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; what is not finite becomes None.

    Examples
    --------
    >>> plain({"loss": np.array([1.0, np.inf]), "steps": np.int64(2)})
    {'loss': [1.0, None], 'steps': 2}
    """
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
