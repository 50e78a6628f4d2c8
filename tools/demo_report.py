"""Creates the summary of a demo: a table of the runs, and a plot of loss and accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

INK, QUIET = "#1f2430", "#8a91a0"
COLOURS = ("#8a94a8", "#5b3fd6")


@dataclass(frozen=True)
class Retraining:
    """One run of the DAG.

    Args:
        number: the number of the run. The first run has the number 1.
        history: `loss` and `accuracy` after each epoch.
        start: a text that describes the weights from which the training started.
        before: the accuracy on the test digits before the first epoch.
        world_size: the number of ranks.
        accuracy, loss: the results on the test digits, which the task `evaluate` has measured.
        promoted: whether the model was promoted.
        seconds: a mapping from the name of each task to its duration in seconds.
    """

    number: int
    history: dict[str, list[float]]
    start: str
    before: float
    world_size: int
    accuracy: float
    loss: float
    promoted: bool
    seconds: dict[str, float]


def table(retrainings: list[Retraining]) -> None:
    """Prints a table with one row for each run."""
    from rich.console import Console
    from rich.table import Table

    rows = Table(title="Retraining the digits classifier", title_justify="left")
    rows.add_column("run")
    for column in ("accuracy", "loss", "ranks", "promoted", *(f"{task} s" for task in retrainings[0].seconds)):
        rows.add_column(column, justify="right")
    for r in retrainings:
        seconds = (f"{s:.1f}" for s in r.seconds.values())
        promoted = "yes" if r.promoted else "no"
        rows.add_row(str(r.number), f"{r.accuracy:.2%}", f"{r.loss:.4f}", str(r.world_size), promoted, *seconds)
    Console(width=110).print(rows)


def picture(retrainings: list[Retraining], path: Path, good_enough: float) -> Path:
    """Plots training loss and test accuracy over the epochs of all runs, and returns the path of the image."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator, PercentFormatter

    plt.rcParams.update({"font.size": 10, "axes.edgecolor": QUIET, "xtick.color": INK, "ytick.color": INK})
    figure, (loss, accuracy) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    ranks = retrainings[0].world_size
    figure.suptitle(f"Digits classifier, retrained by Airflow on {ranks} ranks", x=0.01, ha="left", weight="bold")

    first = 0
    for r in retrainings:
        colour = COLOURS[(r.number - 1) % len(COLOURS)]
        last = first + len(r.history["loss"])
        line = {"color": colour, "marker": "o", "markersize": 4, "linewidth": 1.8}
        loss.plot(range(first + 1, last + 1), r.history["loss"], **line)
        accuracy.plot(range(first, last + 1), [r.before, *r.history["accuracy"]], **line)
        promoted = "promoted" if r.promoted else "not promoted"
        ending = {"xytext": (0, 12), "textcoords": "offset points", "ha": "right", "color": colour, "weight": "bold"}
        accuracy.annotate(f"{r.accuracy:.1%}, {promoted}", (last, max(r.accuracy, good_enough)), **ending)
        for axes in (loss, accuracy):
            if first:
                axes.axvline(first, color=QUIET, linewidth=0.8, linestyle=":")
            axes.text(
                first + 0.3, 1.01, f"run {r.number}: {r.start}", transform=axes.get_xaxis_transform(), color=colour
            )
        first = last

    loss.set_yscale("log")
    loss.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    loss.set_title("training loss, mean of all ranks", loc="left", color=INK, pad=22)
    accuracy.set_ylim(min(0.80, *(r.accuracy - 0.05 for r in retrainings)), 1.015)
    accuracy.yaxis.set_major_locator(MultipleLocator(0.05))
    accuracy.axhline(good_enough, color=QUIET, linewidth=0.8, linestyle="--")
    accuracy.text(first, good_enough - 0.003, f"more than {good_enough:.0%}", color=QUIET, ha="right", va="top")
    accuracy.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    accuracy.set_title("accuracy on digits no rank trained on", loc="left", color=INK, pad=22)
    for axes in (loss, accuracy):
        axes.set_xlim(0, first + 0.4)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
