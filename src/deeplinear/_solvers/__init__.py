"""Ways to solve the equations: every step, nodes in time, merged steps, and a slow reference."""
