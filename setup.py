"""What ``pyproject.toml`` cannot say: products that are compiled where a compiler knows the complex numbers of C.

``DEEPLINEAR_COMPILED`` says how: ``try`` (the default) goes on without, and says so; ``require`` ends the build, which
whoever makes wheels wants; ``never`` makes a wheel without them for any machine, where NumPy takes their place.
``DEEPLINEAR_FLAGS`` are further flags of the compiler, such as those of sanitizers.
"""

import gzip
import hashlib
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

FOLDER = "src/deeplinear/_equations"
SOURCES = ("_rows.pyx", "row_products.h", "row_program.h")
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


class PackSource(sdist):
    """Pack the source: where ``SOURCE_DATE_EPOCH`` is set, equal files make archives that are equal to the bit."""

    def make_archive(
        self,
        base_name: str,
        format: str,
        root_dir: str | None = None,
        base_dir: str | None = None,
        owner: str | None = None,
        group: str | None = None,
    ) -> str:
        """Write the archive with one date, one owner and the files in order; in any other format as usual."""
        moment = os.environ.get("SOURCE_DATE_EPOCH")
        if not moment or format != "gztar" or base_dir is None:
            return str(super().make_archive(base_name, format, root_dir, base_dir, owner, group))

        def alike(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.uid, member.gid, member.uname, member.gname = int(moment), 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        archive, folder = Path(f"{base_name}.tar.gz"), Path(root_dir or ".", base_dir)
        with (
            archive.open("wb") as file,
            gzip.GzipFile("", "wb", 9, file, int(moment)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for path in [folder, *sorted(folder.rglob("*"))]:
                tar.add(path, Path(base_dir, path.relative_to(folder)), recursive=False, filter=alike)
        return str(archive)


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
    depends=[f"{FOLDER}/{name}" for name in SOURCES[1:]],
    include_dirs=[FOLDER],
    define_macros=[("ROWS_SOURCE", f'"{digest()}"')],
    extra_compile_args=os.environ.get("DEEPLINEAR_FLAGS", "").split(),
    extra_link_args=os.environ.get("DEEPLINEAR_FLAGS", "").split(),
    optional=choice() != "require",
)
setup(ext_modules=[] if choice() == "never" else [rows], cmdclass={"build_ext": BuildRows, "sdist": PackSource})
