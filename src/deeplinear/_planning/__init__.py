"""Questions about which run to do: the best schedule, the best of several fields at once, what to spend a budget on."""
