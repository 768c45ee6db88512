"""Small things that many rooms use; they know nothing of networks."""
