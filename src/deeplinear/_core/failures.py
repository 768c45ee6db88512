"""Errors as sentences, for those who read them on a screen."""

import errno

import numpy as np

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full_disk(error: BaseException) -> bool:
    """Whether a file could not be written for want of room."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def in_words(error: BaseException) -> str:
    """Return what an error says, as a sentence also where it came from arithmetic or from Python itself.

    Examples
    --------
    >>> in_words(ValueError("depth must be a whole number, at least 1, got 0"))
    'depth must be a whole number, at least 1, got 0'
    >>> in_words(ZeroDivisionError("float division by zero"))
    'the numbers in this problem overflow or underflow (float division by zero): use less extreme values'
    >>> in_words(MemoryError())
    'there is not enough memory: lower the steps or the sizes'
    """
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and is_full_disk(error):
        return f"there is no room on the disk ({error.strerror}): delete something and try again"
    if isinstance(error, RecursionError):
        return "the values are nested too deeply: lists of lists are enough"
    if isinstance(error, MemoryError):
        return text or "there is not enough memory: lower the steps or the sizes"
    from_arithmetic = isinstance(error, (ZeroDivisionError, OverflowError, FloatingPointError))  # others are sentences
    if from_arithmetic or isinstance(error, np.linalg.LinAlgError) or text in ("math domain error", "math range error"):
        return f"the numbers in this problem overflow or underflow ({text}): use less extreme values"
    return text or type(error).__name__
