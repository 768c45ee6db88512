"""The networks, update rules and data of problems in PyTorch, for one's own training loop."""
