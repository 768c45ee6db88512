"""Panels: smooth long runs, solved at nodes in time."""
