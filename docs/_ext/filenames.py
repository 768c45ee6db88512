"""Names of the reference's pages: a class and a function whose names differ by case alone have files that do not.

``Transfer`` and ``transfer`` would else be one file where file systems do not tell cases apart.
"""

from collections.abc import Iterable


def filename_map(names: Iterable[str]) -> dict[str, str]:
    """Return file names of the pages of public names that need another one, by their full names.

    Examples
    --------
    >>> filename_map(["Transfer", "transfer", "MLP"])
    {'deeplinear.Transfer': 'deeplinear.Transfer-class'}
    """
    known = set(names)
    doubled = {name for name in known if not name.islower() and name.lower() in known}
    return {f"deeplinear.{name}": f"deeplinear.{name}-class" for name in sorted(doubled)}
