"""Training of finite networks, by definition: the independent check of the theory.

Nothing here knows of the theory's equations. ``network.py`` has the fields that weights define,
``streams.py`` what a step sees of the data, ``steps.py`` the update rules in place, ``training.py`` the
loop over phases and steps, ``train.py`` a network from its seeds, ``record.py`` and ``history.py`` what is kept of it.
"""
