"""Theory and experiment side by side."""
