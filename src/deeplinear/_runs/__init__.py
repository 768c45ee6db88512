"""The law of learning-rate schedules, fitted to real training runs."""
