"""Sphinx configuration of the documentation; ``make docs`` builds it with warnings as errors."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import deeplinear

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
from filenames import filename_map

# The kernels that run the pages use a profile of their own: not the user's, and without their warnings about transport.
PROFILE = Path(__file__).parent / "_build" / "ipython" / "profile_default"
PROFILE.mkdir(parents=True, exist_ok=True)
(PROFILE / "ipython_kernel_config.py").write_text(
    'get_config().IPKernelApp.log_level = "ERROR"\nget_config().IPKernelApp.matplotlib = "inline"\n'
)
os.environ["IPYTHONDIR"] = str(PROFILE.parent)

project = "deeplinear"
author = "The deeplinear authors"
project_copyright = "The deeplinear authors"
release = version = deeplinear.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",  # equations are shown without the network
    "gallery",
    "notebooks",
    "signatures",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_ext", "_templates", "gallery/*.md"]

# A reference that leads nowhere, an example that fails or writes to stderr: all of them end the build.
nitpicky = True
nb_execution_mode = "force"
nb_execution_timeout = 180
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_output_stderr = "error"
nb_merge_streams = True
nb_render_markdown_format = "myst"

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# Equations are numbered by the pages of the theory, (2.3) say, so that a number means one equation.
numfig = True
numfig_secnum_depth = 1
math_numfig = True
math_eqref_format = "({number})"

autosummary_generate = True
autosummary_filename_map = filename_map(deeplinear.__all__)
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]  # whose types the page on deeplinear.torch names
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "of"}  # how solvers make a Solution
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
maximum_signature_line_length = 90
numpydoc_show_class_members = False
# Types of other projects, whose pages are not at hand when the site is built, and the names of type variables.
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|pd|xarray|xr|matplotlib|collections|pathlib|enum|typing|distributed|torch)(\..*)?"),
    ("py:.*", r"(Any|Array|ArrayLike|Callable|Iterable|Literal|Mapping|NDArray|Path|Sequence|Figure|Axes)"),
    ("py:.*", r"Traits|deeplinear\._[\w.]+\.(Axis|Cost|Modes|Layers|Scaling|Orthogonal|Stage|Optimizer)"),
    ("py:.*", r"deeplinear\._[\w.]+\.(Forecast|Numbers|PaperPanel|Part|RunSchedule|Stopping)"),  # given, never made
]

html_theme = "pydata_sphinx_theme"
html_title = f"deeplinear {version}"  # a page says of which version it is
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "start", "gallery", "limits")}  # no pages below them
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "pygments_light_style": "friendly",
    "pygments_dark_style": "monokai",
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
