import pytest

pytest.register_assert_rewrite("agreement", "command_line", "explorer", "explorer_page", "sweeps")

from browser import browser  # noqa: E402, F401
from command_line import in_folder  # noqa: E402, F401
from sweeps import counting  # noqa: E402, F401
