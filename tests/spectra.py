"""Problems whose data have a spectrum, for tests."""

import deeplinear as dl

FOUR_MODES = dl.Spectrum(
    [2.0, 1.0, 0.3, 0.05], [0.3, 1.0, 1.0, 2.0], [0.1, 0.3, 0.4, 0.2], proportional=True, noise=0.2
)
GRAM = ((1.0, 0.3), (0.3, 0.5))
REGIMES = ["population", "full batch", "online", "multi-pass"]


def sampling(regime, samples, batch):
    return {
        "population": lambda: dl.Population(),
        "full batch": lambda: dl.FullBatch(samples),
        "online": lambda: dl.OnlineSGD(batch),
        "multi-pass": lambda: dl.MultiPassSGD(samples, batch),
    }[regime]()


def make(data, regime="full batch", *, width=48.0, samples=60.0, batch=20.0, lr=0.1, steps=12, richness=1.0, **network):
    network = dl.MLP(2, width, richness, **network)
    return dl.Problem(network, data, sampling(regime, samples, batch), dl.GradientDescent(lr), steps)
