"""Parameters of a problem from measured curves."""
