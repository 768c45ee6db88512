"""Which run to do: the best schedule, the best of several fields at once, what transfers, what to spend a budget on."""
