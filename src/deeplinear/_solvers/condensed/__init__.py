"""Every step is solved, with the past condensed: long runs with noise, momentum or oscillations."""
