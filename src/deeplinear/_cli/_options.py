"""Options of the command line, each declared once, in groups that commands share."""

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from deeplinear import EMA, TailMean
from deeplinear._cli._errors import UsageError
from deeplinear._cli._fields import FIELDS, KINDS, Field, problem_from
from deeplinear._cli._readers import number, numbers
from deeplinear._cli._report import Report
from deeplinear._core import checks
from deeplinear._core.about import About
from deeplinear._core.device import find_device
from deeplinear._core.refusal import Refusal
from deeplinear._core.words import INFINITE


@dataclass(frozen=True)
class Finite:
    """What a simulation needs beside the problem; ``dim`` is None where it was not given."""

    dim: int | None
    seeds: int | list[int]
    workers: int | None
    record: str
    method: str

    DIM = 500
    SEEDS = 32

    @property
    def actual_dim(self) -> int:
        """What was given, or the default."""
        return self.DIM if self.dim is None else self.dim


class Group(NamedTuple):
    """Options that belong together, and how to make one argument of a command from their values."""

    argument: str
    parameters: tuple[inspect.Parameter, ...]
    build: Callable[[dict[str, Any]], Any]


def make_option(name: str, kind: Any, default: Any, *flags: str, **settings: Any) -> inspect.Parameter:
    """Return an option as a parameter of a command, with the settings of ``typer.Option``.

    Whole numbers are read as those of a problem are: 1e4 is one. Switches take no value, and help names none for them.
    """
    if kind in (int, int | None):
        settings |= {"parser": _whole_number(flags[0])}
    if kind in (float, float | None):
        settings |= {"parser": _number(flags[0])}
    if kind in (bool, bool | None):
        settings |= {"metavar": ""}
    annotation = Annotated[kind, typer.Option(*flags, **settings)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _whole_number(flag: str) -> Callable[[Any], int]:
    """Return what reads the value of an option that is a whole number."""

    def read(text: Any) -> int:
        try:
            return checks.whole(flag, number(str(text)), at_least=-sys.maxsize)
        except (ValueError, OverflowError):
            raise UsageError(f"{flag} must be a whole number, got {str(text)!r}") from None

    return read


def _number(flag: str) -> Callable[[Any], float]:
    """Return what reads the value of an option that is a number."""

    def read(text: Any) -> float:
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"{flag} must be a number, got {str(text)!r}") from None

    return read


def _problem_options() -> Iterator[inspect.Parameter]:
    yield make_option(
        "problem",
        Path | None,
        None,
        "--problem",
        metavar="FILE.toml",
        show_default=False,
        help="Read the problem, with its phases, from a file or standard input (-); other options replace its fields.",
    )
    for part, kinds in KINDS.items():
        panel = part.capitalize()
        if len(kinds) > 1:
            yield make_option(
                part,
                str | None,
                None,
                f"--{part}",
                metavar="|".join(kinds),
                show_default=next(iter(kinds)),
                help=f"Kind of {part}.",
                rich_help_panel=panel,
            )
        yield from (_field_option(field, panel) for field in FIELDS if field.part == part)
    yield from (_field_option(field, "Optimizer") for field in FIELDS if field.part is None)


def _field_option(field: Field, panel: str) -> inspect.Parameter:
    only = "" if field.part is None or len(field.kinds) == len(KINDS[field.part]) else f" [{', '.join(field.kinds)}]"
    settings = {
        "help": _sentence(field.about) + only,
        "show_default": _shown_default(field) or False,
        "rich_help_panel": panel,
    }
    if field.is_switch:
        return make_option(field.name, bool | None, None, f"{field.flag}/--no-{field.flag[2:]}", **settings)
    kind = list[str] | None if field.reader.repeats else str | None
    return make_option(field.name, kind, None, field.flag, metavar=field.about.placeholder, **settings)


_SCHEDULE = "'cosine(0.1, warmup=0.2)'"


def _sentence(about: About) -> str:
    """Help of a field, with what may be typed in place of a number."""
    sentences = [about.help]
    if about.form in ("numbers", "list"):
        sentences.append("Separate several values with commas.")
    if about.form == "series":
        sentences.append(f"Separate one value for each step with commas; a schedule is like {_SCHEDULE}.")
    if about.form == "layers":
        sentences.append("One number for each weight layer, or some by name, such as 'input=1,readout=0'.")
    if about.form in ("list", "matrix"):
        sentences.append("JSON is read too.")
    if about.infinite:
        sentences.append(f"It may be {INFINITE if about.form == 'numbers' else 'inf'}.")
    return " ".join(sentences)


def _shown_default(field: Field) -> str:
    about = field.about
    if about.start is not None:
        return f"{about.start}" if about.count is None else f"{about.start}, or {about.count} where sizes are counts"
    if field.inside and field.key == "lr":
        return "that of --lr"
    shown = {word: value for word, value in field.defaults if value not in (None, MISSING)}
    if not shown or field.is_switch:
        return ""
    first, *others = dict.fromkeys(shown.values())
    special = (f"{each} with {', '.join(word for word, value in shown.items() if value == each)}" for each in others)
    return "; ".join([f"{first}", *special])


def _seeds(text: str) -> Any:
    try:
        value = numbers(text)
    except ValueError:
        raise Refusal("--seeds", text, "a number of seeds, or seeds separated by commas") from None
    return value


_REPLACED: set[Path] = set()
"""Files that were there before a command that writes them."""


def output_path(text: str | None, suffixes: tuple[str, ...]) -> Path | None:
    """Check, before any work is done, that a file of an allowed kind can be written at a path."""
    if text is None:
        return None
    path = Path(text)
    if path.suffix.lower() not in suffixes:
        raise Refusal("--out", text, " or ".join(suffixes), verb="end in")
    if not path.parent.is_dir():
        raise ValueError(f"--out: the folder {str(path.parent)!r} does not exist; create it first")
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise ValueError(f"--out: cannot write into the folder {str(path.parent)!r}: {error.strerror}") from None
    (_REPLACED.add if path.exists() else _REPLACED.discard)(path)
    return path


def is_replaced(path: Path) -> bool:
    """Whether there was a file at the path of ``--out`` when the command began."""
    return path in _REPLACED


def out(default: str, suffixes: tuple[str, ...]) -> Group:
    """Return the option for the file that a command writes; with --json only if it is asked for."""
    parameter = make_option(
        "out",
        str | None,
        None,
        "--out",
        metavar="PATH",
        show_default=f"{default}; with --json none",
        help=f"File to write: {', '.join(suffixes)}.",
        rich_help_panel="Output",
    )

    def build(values: dict[str, Any]) -> Path | None:
        return output_path(values["out"] or (None if values["json"] else default), suffixes)

    return Group("out", (parameter,), build)


def workers_option(help: str, panel: str) -> inspect.Parameter:
    """Return the option for how much is done at the same time."""
    settings = {"metavar": "N", "show_default": "all cores", "help": help, "rich_help_panel": panel}
    return make_option("workers", int | None, None, "--workers", **settings)


PROBLEM = Group("problem", tuple(_problem_options()), problem_from)

FINITE = Group(
    "finite",
    (
        make_option(
            "dim",
            int | None,
            None,
            "--dim",
            metavar="D",
            show_default=str(Finite.DIM),
            help="Input dimension of the networks that are trained.",
            rich_help_panel="Experiment",
        ),
        make_option(
            "seeds",
            str,
            str(Finite.SEEDS),
            "--seeds",
            metavar="N",
            help="Number of networks to train, or their seeds separated by commas.",
            rich_help_panel="Experiment",
        ),
        workers_option("Networks trained at the same time.", "Experiment"),
        make_option(
            "record",
            str,
            "all",
            "--record",
            metavar="all|losses",
            help="What to keep; losses alone need less memory.",
            rich_help_panel="Experiment",
        ),
        make_option(
            "method",
            str,
            "auto",
            "--method",
            metavar="auto|explicit|lazy|reduced",
            help="How matrices are kept: every entry, or only what training looks at, which allows any size.",
            rich_help_panel="Experiment",
        ),
    ),
    lambda values: Finite(
        values["dim"], _seeds(values["seeds"]), values["workers"], values["record"], values["method"]
    ),
)


class Files(NamedTuple):
    """Files with measured curves, and the columns of their losses."""

    paths: list[str]
    test_loss: str | None
    train_loss: str | None


def _files(help: str, required: bool) -> Group:
    """Return the argument of files, and the options of their columns."""
    kind: Any = list[str] if required else list[str] | None
    annotation = Annotated[kind, typer.Argument(metavar="FILES", show_default=False, help=help)]
    default = inspect.Parameter.empty if required else None
    panel = "Experiment"
    return Group(
        "files",
        (
            inspect.Parameter("files", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation),
            *(
                make_option(
                    f"{name}_loss",
                    str | None,
                    None,
                    f"--{name}-loss",
                    metavar="COLUMN",
                    show_default=shown,
                    help=f"Column of the {name} loss in files.",
                    rich_help_panel=panel,
                )
                for name, shown in (("test", "test_loss, val_loss, ..."), ("train", "train_loss, loss, ..."))
            ),
        ),
        lambda values: Files(values["files"] or [], values["test_loss"], values["train_loss"]),
    )


_KINDS_OF_FILES = "CSV files (a step and a loss in each line, under their names) or TensorBoard event files"

FILES = _files(f"Curves of networks that were trained elsewhere, in place of networks: {_KINDS_OF_FILES}.", False)

CURVES = _files(f"Curves: {_KINDS_OF_FILES}.", True)

REPORT = Group(
    "report",
    (
        make_option(
            "json", bool, False, "--json", help="Print one JSON document and nothing else.", rich_help_panel="Output"
        ),
        make_option("quiet", bool, False, "--quiet", "-q", help="Show no progress.", rich_help_panel="Output"),
    ),
    lambda values: Report(json=values["json"], quiet=values["quiet"]),
)

_AVERAGES: dict[str, type[EMA] | type[TailMean]] = {"ema": EMA, "tail": TailMean}


def read_average(option: str, text: str) -> EMA | TailMean:
    """Read text such as ``ema=0.99``, of an option."""
    word, _, value = text.partition("=")
    try:
        return _AVERAGES[word.strip()](number(value))
    except Refusal as refusal:
        raise Refusal(f"{option} {word.strip()}", refusal.value, refusal.allowed) from None
    except (KeyError, ValueError):
        raise Refusal(option, text, "like ema=0.99 or tail=0.5", verb="look") from None


AVERAGES = Group(
    "averages",
    (
        make_option(
            "average",
            list[str] | None,
            None,
            "--average",
            metavar="ema=DECAY|tail=PART",
            help="Also compute the test loss of averaged weights: a moving average, or the mean of the last part of "
            "all steps; repeat for more.",
            rich_help_panel="Output",
        ),
    ),
    lambda values: tuple(read_average("--average", text) for text in values["average"] or []),
)

DEVICE = Group(
    "device",
    (
        make_option(
            "device",
            str,
            "cpu",
            "--device",
            metavar="NAME",
            help="Where to compute: cpu, or a PyTorch device such as cuda.",
            rich_help_panel="Output",
        ),
    ),
    lambda values: find_device(values["device"]).name,
)

TOLERANCE = Group(
    "tolerance",
    (
        make_option(
            "tolerance",
            float,
            0.05,
            "--tolerance",
            metavar="FRACTION",
            help="Relative error below which a significant difference still counts as close.",
            rich_help_panel="Output",
        ),
    ),
    lambda values: values["tolerance"],
)
