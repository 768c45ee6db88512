"""The closed equations for correlations and responses, each written once.

Notation follows the paper (Bordelon & Pehlevan 2025) in ASCII. Every two-time function is a matrix
over rows, a row being the pair (step, output). All kernels are causal, so a *set of rows* follows
from the rows before it in the order in which a training step runs:

    g_L, ..., g_1  (backward)     v, Delta, h_0  (data)     h_1, ..., h_L  (forward)

``site.py``        two coupled fields, h = u + A g and g = r + B h: what every layer consists of
``layers.py``      the hidden layers: what A, B and the sources of each layer are
``layer_zero.py``  layer 0: the data and their modes, with responses in ``data_responses.py`` and what sampling adds in
                   ``data_noise.py``

Each has a class for responses and one for covariances. Covariances are linear in their sources once
the responses are known; that is what overlaps between replicas of a network use.
"""
