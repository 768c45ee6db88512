"""The controls of the page: every field of a problem in plain words, with its symbol and its range."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Control:
    """One field of a problem on the page.

    Attributes
    ----------
    part, name
        Where the field stands in a problem; part is empty for a field of the problem itself.
    kinds
        Kinds of the part that have the field.
    label, symbol, help
        What it is called, its letter in the paper, and what it does.
    widget
        ``"slider"``, ``"choice"``, ``"switch"`` or ``"text"``.
    default
        Value at the start.
    allowed
        What may be typed, in words.
    low, high
        Ends of the slider, which is logarithmic where ``log`` is set; any allowed value can be typed.
    count
        Default, low and high where sizes are counts and not ratios to the input dimension.
    infinite
        Kinds that may take the word "infinite".
    choices
        Values of a choice, with their words.
    more
        Whether it hides until asked for.
    """

    part: str
    name: str
    kinds: tuple[str, ...]
    label: str
    symbol: str
    help: str
    widget: str
    default: Any
    allowed: str = ""
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False
    count: tuple[float, float, float] | None = None
    infinite: tuple[str, ...] = ()
    choices: tuple[tuple[str, str], ...] = ()
    more: bool = False


_NETWORKS = ("MLP", "ResNet")
_DATA = ("Isotropic", "Spectrum", "PowerLaw")
_OPTIMIZERS = ("GradientDescent",)

KINDS: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "network": (
        "Network",
        "What is trained: layers of linear neurons, from random weights.",
        (("MLP", "Multilayer"), ("ResNet", "Residual")),
    ),
    "data": (
        "Data",
        "What there is to learn: a linear rule seen through random examples.",
        (("Isotropic", "All directions alike"), ("PowerLaw", "Power law"), ("Spectrum", "Own spectrum")),
    ),
    "sampling": (
        "Sampling",
        "Which examples each training step sees.",
        (
            ("FullBatch", "Full batch"),
            ("OnlineSGD", "Fresh batches"),
            ("MultiPassSGD", "Batches, many passes"),
            ("Population", "Unlimited data"),
        ),
    ),
    "optimizer": ("Training", "How the weights are changed, and for how long.", (("GradientDescent", ""),)),
}
"""Of each part of a problem: its heading, a sentence, and its kinds in words; the first is the default."""

CONTROLS = (
    Control(
        "network", "depth", _NETWORKS, "Depth", "L", "Number of hidden layers.", "slider", 3,
        "whole number from 1 to 256", 1, 16, whole=True, infinite=("ResNet",),
    ),
    Control(
        "network", "width", _NETWORKS, "Width", "ν", "Neurons in each hidden layer, per input dimension.", "slider",
        1.0, "above 0; one per layer with commas", 0.05, 16.0, log=True, count=(256, 4, 4096), infinite=_NETWORKS,
    ),
    Control(
        "network", "richness", _NETWORKS, "Richness", "γ₀",
        "How far features move: near 0 the network is lazy, large values learn features.", "slider", 1.0,
        "above 0", 0.05, 10.0, log=True,
    ),
    Control(
        "network", "parameterization", _NETWORKS, "Scaling with width", "",
        "muP keeps feature learning alike at every width; in NTK it fades as networks get wider.", "choice", "mup",
        choices=(("mup", "muP"), ("ntk", "NTK")),
    ),
    Control(
        "network", "branch", ("ResNet",), "Branch strength", "β₀", "How much each layer adds to the stream.",
        "slider", 1.0, "0 or above", 0.0, 4.0,
    ),
    Control(
        "network", "branch_scaling", ("ResNet",), "Scaling with depth", "",
        "Whether branches shrink as 1/√L, so that very deep networks have a limit.", "choice", "depth-mup",
        choices=(("depth-mup", "1/√L"), ("none", "none")),
    ),
    Control(
        "network", "centered", _NETWORKS, "Start from zero output", "",
        "Subtracts what the untrained network says.", "switch", False, more=True,
    ),
    Control(
        "data", "noise", _DATA, "Label noise", "σ", "Random error in the labels; no network can learn it.", "slider",
        0.3, "0 or above", 0.0, 2.0,
    ),
    Control(
        "data", "capacity", ("PowerLaw",), "Decay of the inputs", "a",
        "Variance of direction k is k⁻ᵃ: larger means fewer directions that matter.", "slider", 1.5,
        "above 1, at most 100", 1.05, 4.0,
    ),
    Control(
        "data", "source", ("PowerLaw",), "Ease of the task", "b",
        "How much of the rule lies in the strong directions; below 1 the task is hard.", "slider", 1.0,
        "above 0", 0.1, 3.0,
    ),
    Control(
        "data", "eigenvalues", ("Spectrum",), "Input variances", "λ", "One for each group of directions.", "text",
        (4.0, 1.0, 0.25), "numbers from 0, with commas",
    ),
    Control(
        "data", "target_power", ("Spectrum",), "Target powers", "w²", "Strength of the rule along each group.", "text",
        (1.0, 1.0, 1.0), "numbers from 0, with commas",
    ),
    Control(
        "data", "multiplicity", ("Spectrum",), "Directions in each group", "m",
        "Counts, or fractions that sum to 1; empty for the same in each.", "text", (0.1, 0.3, 0.6),
        "numbers above 0, with commas, or empty",
    ),
    Control(
        "data", "proportional", ("Spectrum",), "Groups are fractions", "",
        "Sizes are then ratios to the input dimension; otherwise they are counts.", "switch", True,
    ),
    Control(
        "data", "target_gram", ("Isotropic",), "Several outputs", "",
        "Overlaps of the outputs' rules, such as 1, 0.2; 0.2, 1. Empty for one output.", "text", None,
        "symmetric matrix, with commas, and semicolons between rows", more=True,
    ),
    Control(
        "sampling", "samples", ("FullBatch", "MultiPassSGD"), "Data set size", "α",
        "Examples per input dimension. Below 1 there are fewer examples than unknowns.", "slider", 2.0,
        "above 0", 0.1, 20.0, log=True, count=(512, 8, 8192),
    ),
    Control(
        "sampling", "batch", ("OnlineSGD", "MultiPassSGD"), "Batch size", "α_B",
        "Examples in each step, per input dimension. Small batches are noisy.", "slider", 0.5,
        "above 0", 0.02, 20.0, log=True, count=(64, 1, 2048),
    ),
    Control(
        "sampling", "small_batch", ("OnlineSGD",), "Correct for tiny batches", "",
        "Keeps noise of order 1/B; for power-law and counted data.", "switch", False, more=True,
    ),
    Control(
        "optimizer", "lr", _OPTIMIZERS, "Learning rate", "η",
        "Size of each step: too small is slow, too large blows up.", "slider", 0.03, "above 0", 0.0005, 2.0, log=True,
    ),
    Control(
        "", "steps", (), "Training steps", "T", "How long to train.", "slider", 150,
        "whole number from 1 to 10 million", 10, 1000, log=True, whole=True,
    ),
    Control(
        "optimizer", "schedule", _OPTIMIZERS, "Schedule", "η(t)", "How the learning rate changes over training.",
        "choice", "constant",
        choices=(("constant", "constant"), ("warmup", "warm-up"), ("cosine", "cosine"), ("decay", "1/√t")), more=True,
    ),
    Control(
        "optimizer", "momentum", _OPTIMIZERS, "Momentum", "μ", "How much of the last step is carried on.", "slider",
        0.0, "from 0 to below 1", 0.0, 0.99, more=True,
    ),
    Control(
        "optimizer", "nesterov", _OPTIMIZERS, "Look ahead (Nesterov)", "", "Needs momentum above 0.", "switch", False,
        more=True,
    ),
    Control(
        "optimizer", "weight_decay", _OPTIMIZERS, "Weight decay", "λ", "Pulls all weights towards zero.", "slider",
        0.0, "0 or above", 0.0, 1.0, more=True,
    ),
)  # fmt: skip


def as_plain() -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    parts = {name: {"label": label, "help": text, "kinds": kinds} for name, (label, text, kinds) in KINDS.items()}
    return {"parts": parts, "controls": [asdict(control) for control in CONTROLS]}
