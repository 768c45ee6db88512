"""What only some tests need, and not every machine has."""

import importlib.util
import os
from types import ModuleType

import pytest


def need(word: str, found: bool, advice: str) -> None:
    """Skip the test that asks unless ``found``; fail it where ``DEEPLINEAR_REQUIRE``, a list with commas, has the word.

    So a machine that is to run everything says ``DEEPLINEAR_REQUIRE=torch``, and nothing is left out unseen.
    """
    if found:
        return
    message = f"{word} is not here: {advice}"
    if word in os.environ.get("DEEPLINEAR_REQUIRE", "").split(","):
        pytest.fail(message, pytrace=False)
    pytest.skip(message, allow_module_level=True)


def need_torch() -> tuple[ModuleType, ModuleType]:
    """Return PyTorch and ``deeplinear.torch``, or skip the test or the file that asks."""
    need("torch", importlib.util.find_spec("torch") is not None, "pip install 'deeplinear[gpu]'")
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)  # networks of tests are small, and tests run beside each other
    return torch, importlib.import_module("deeplinear.torch")
