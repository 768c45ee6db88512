"""What the theory predicts for a problem: solutions, curves and their derivatives."""
