"""What is trained, as frozen data that check themselves."""
