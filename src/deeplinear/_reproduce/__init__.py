"""The paper's figures and table, with every claim checked.

``panel`` says what a panel is, ``claim`` how a claim is judged, and ``figures`` has them all, as data; ``plan`` turns
them into ``jobs``, which ``compute`` runs and ``store`` keeps; ``results`` and ``measure`` serve the claims,
``draw`` and ``page`` show them; ``run`` does all of it.
"""

SCALES = ("tiny", "quick", "full")
"""How large experiments are: for tests, for a look, for pictures to keep."""
