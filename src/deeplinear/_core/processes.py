"""Other processes of Python on this machine, which see the modules that this one sees and no others."""

import signal
import sys

_OUT_OF_MEMORY = ("SIGKILL", "SIGABRT", "SIGSEGV")
"""How the system, or a library that finds no memory, ends a process."""


_TRIED = """
try:
    import {0}
except Exception as reason:  # whoever needs what is in it says so
    print("{0} was not imported:", reason, file=sys.stderr)
"""

_wanted: list[str] = []


def also_import(module: str) -> None:
    """Let other processes import a module, as this one did; not the program itself, which would run again."""
    if module != "__main__" and module not in _wanted:
        _wanted.append(module)


def command(module: str, *options: str) -> list[str]:
    """Return the command of a process that runs ``main`` of a module.

    It imports from the path of this process. Python by itself would put the current folder first, and run whatever
    file there has the name of a module.

    Examples
    --------
    >>> command("deeplinear._core.worker")[1:3]
    ['-P', '-c']
    """
    flags = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    path = [str(entry) for entry in sys.path]
    code = f"import sys\nsys.path[:] = {path!r}\n"
    code += "".join(_TRIED.format(each) for each in _wanted) + f"from {module} import main; main()"
    return [sys.executable, "-P", *(flag for flag, is_set in flags.items() if is_set), *options, "-c", code]


def ended(returncode: int | None) -> str:
    """Say how a process ended, and why it may have.

    Examples
    --------
    >>> ended(1)
    'with exit code 1'
    >>> ended(-9)
    'by SIGKILL; it may have run out of memory'
    """
    if returncode is None or returncode >= 0:
        return f"with exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:  # a signal without a name
        name = f"signal {-returncode}"
    return f"by {name}{'; it may have run out of memory' if name in _OUT_OF_MEMORY else ''}"
