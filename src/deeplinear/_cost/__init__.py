"""What a solution or an experiment takes, in time and memory."""
