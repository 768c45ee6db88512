"""``cached_property`` without a lock, as from Python 3.12 on.

That of Python 3.11 holds one lock for all instances: threads wait for each other, and a process that is forked
meanwhile waits for ever.
"""

import functools
import sys
from typing import Any, Self, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")

if sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property[T]):
        """A property that is computed once for each instance."""

        @overload
        def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
        @overload
        def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
        def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
            if instance is None:
                return self
            kept = vars(instance)
            assert self.attrname is not None
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            value: T = kept[self.attrname]
            return value
