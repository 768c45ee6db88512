"""Problems and their parts that many tests start from."""

import deeplinear as dl

SAMPLINGS = [
    dl.Population(),
    dl.FullBatch(samples=1.5),
    dl.OnlineSGD(batch=0.4),
    dl.MultiPassSGD(samples=1.5, batch=0.5),
]
"""One of each sampling rule."""
