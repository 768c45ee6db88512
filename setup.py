"""What ``pyproject.toml`` cannot say: products that are compiled where there is a compiler.

Without one the installation goes on, and NumPy takes their place.
"""

from setuptools import Extension, setup

folder = "src/deeplinear/_equations"
rows = Extension(
    "deeplinear._equations._rows",
    sources=[f"{folder}/_rows.pyx"],
    depends=[f"{folder}/row_products.h"],
    include_dirs=[folder],
    # Sums in any order, which vector instructions need; what is not finite stays so.
    extra_compile_args=["-O3", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fcx-limited-range"],
    optional=True,
)
setup(ext_modules=[rows])
