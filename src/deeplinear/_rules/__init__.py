"""How weights are changed: update rules with their schedules, and averages of weights."""
