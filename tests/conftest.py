from browser import browser  # noqa: F401
