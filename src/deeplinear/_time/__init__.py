"""A time axis of steps or nodes, and the sums over earlier times that an optimiser makes."""
