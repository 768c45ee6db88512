"""What ``pyproject.toml`` cannot say: products that are compiled where a compiler knows the complex numbers of C.

``DEEPLINEAR_COMPILED`` says how: ``try`` (the default) goes on without, and says so; ``require`` ends the build, which
whoever makes wheels wants; ``never`` makes a wheel without them for any machine, where NumPy takes their place.
``DEEPLINEAR_FLAGS`` are further flags of the compiler, such as those of sanitizers.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "src/deeplinear/_equations"
SOURCES = ("_rows.pyx", "row_products.h")
# Sums in any order, which vector instructions need; what is not finite stays so.
FLAGS = ["-O3", "-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math", "-fcx-limited-range"]
CHOICES = ("try", "require", "never")


class BuildRows(build_ext):
    """Build with the flags that the compiler knows, or say aloud that nothing is built."""

    def build_extension(self, ext: Extension) -> None:
        """Build the products, or go on without them."""
        try:
            if self.compiler.compiler_type == "msvc":
                raise OSError("this compiler has no complex numbers of C99")
            if not self._takes():
                raise OSError("no C compiler works here")
            ext.extra_compile_args += self._known_flags()
            super().build_extension(ext)
        except Exception as reason:
            if choice() == "require":
                raise
            warn(
                f"the products of a training step are not compiled: {reason}.\n"
                "NumPy computes them, with the same results up to rounding; short runs take nearly twice as long."
            )
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)  # one that an earlier build has left

    def _known_flags(self) -> list[str]:
        """Return those flags that the compiler takes without a word, each beside the ones before it."""
        known: list[str] = []
        for flag in FLAGS:
            known += [flag] if self._takes(*known, flag, "-Werror") else []
        unknown = [flag for flag in FLAGS if flag not in known]
        if unknown:
            warn(f"the compiler does not know {' '.join(unknown)}; the products of a training step may be slower.")
        return known

    def _takes(self, *flags: str) -> bool:
        """Return whether the compiler works, with these flags."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "empty.c")
            source.write_text("int main(void) { return 0; }\n")
            try:
                self.compiler.compile([str(source)], folder, extra_postargs=list(flags))
            except Exception:
                return False
        return True


def choice() -> str:
    """Return what ``DEEPLINEAR_COMPILED`` says."""
    word = os.environ.get("DEEPLINEAR_COMPILED", "try")
    if word not in CHOICES:
        raise SystemExit(f"DEEPLINEAR_COMPILED is {word!r}; it must be one of {', '.join(CHOICES)}")
    return word


def warn(message: str) -> None:
    """Say something that is not lost between the lines of a build."""
    bar = "*" * 100
    print(f"{bar}\ndeeplinear: {message}\n{bar}", file=sys.stderr)


def digest() -> str:
    """Return what the compiled module keeps of its source, by which ``_equations/compiled.py`` knows a stale one."""
    content = b"".join(Path(FOLDER, name).read_bytes() for name in SOURCES)
    return hashlib.sha256(content).hexdigest()


rows = Extension(
    "deeplinear._equations._rows",
    sources=[f"{FOLDER}/{SOURCES[0]}"],
    depends=[f"{FOLDER}/{SOURCES[1]}"],
    include_dirs=[FOLDER],
    define_macros=[("ROWS_SOURCE", f'"{digest()}"')],
    extra_compile_args=os.environ.get("DEEPLINEAR_FLAGS", "").split(),
    extra_link_args=os.environ.get("DEEPLINEAR_FLAGS", "").split(),
    optional=choice() != "require",
)
setup(ext_modules=[] if choice() == "never" else [rows], cmdclass={"build_ext": BuildRows})
