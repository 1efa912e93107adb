"""Errors and seconds of short runs as tables, a page and a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from quatcaps.data.catalogue import DESCRIPTIONS
from quatcaps.files import new_file
from quatcaps.paper.collection import Entry, columns, outdated, spread
from quatcaps.paper.render import QUICK, made_with
from quatcaps.report.canvas import INK, MUTED, RULE, SMALL, TEXT, WIDTH, dress, literal, new_figure, save
from quatcaps.report.styles import BEST
from quatcaps.report.tables import NOTHING, Table

COUNTED = (
    "Every run is trained to its end and measured once there: no epoch is picked. Reached: seeds whose error is at "
    "most the paper's. ± is the deviation over seeds.",
    "Seconds are those of training: making batches with their augmentation, all steps, the run's own capture of its "
    "CUDA graph, averaging. They leave out compilation (each run is preceded by steps of a trainer that is thrown "
    "away, which compile and load the kernels), reading the images and copying them to the GPU, making the network, "
    "the checkpoint and the measurement at the end. Runs side by side on one GPU take longer than one alone.",
)
HELD_OUT = (
    "Errors on images that are held out of the training images (of smallNORB whole toys, other ones for each of five "
    "seeds); no test image was looked at. Settings are changes to the recipe `{}`; the best mean comes first."
)


def write(name: str, entries: Sequence[Entry], output: Path, *, quick: bool = False) -> tuple[Table, list[Path]]:
    """`NAME.md` and `NAME.csv` in `output`, and, of test images, `NAME.png`; and the table for a terminal."""
    held_out = any("validation" in record.final for entry in entries for record in entry.records)
    table = held_out_table(entries) if held_out else error_table(entries)
    written = [output / f"{name}.md", output / f"{name}.csv"]
    if not held_out:
        written.append(output / f"{name}.png")
        seconds_figure(entries, written[-1])
    _write(written[0], page(name, table, entries, pictured=not held_out, quick=quick))
    _write(written[1], numbers(entries).csv())
    return table, written


def page(name: str, table: Table, entries: Sequence[Entry], *, pictured: bool, quick: bool) -> str:
    """The Markdown page."""
    stale, recipe, timed = outdated(entries), entries[0].row.recipe, entries[0].row.timed
    differing = "Recorded with other settings than the recipe has now:\n" + "\n".join(f"- {each}" for each in stale)
    parts = [
        "# The paper's errors in seconds" if pictured else f"# {'Short runs' if timed else 'Runs'} on held-out images",
        table.markdown().rstrip(),
        *([f"![errors and seconds by seed]({name}.png)"] if pictured else [HELD_OUT.format(recipe)]),
        *(COUNTED if timed else COUNTED[:1]),
        *([QUICK] if quick else []),
        made_with("bench --to-error", entries, quick=quick),
        *([differing] if stale else []),
    ]
    return "\n\n".join(parts) + "\n"


def error_table(entries: Sequence[Entry]) -> Table:
    """A line for each dataset."""
    lines = []
    for entry in entries:
        errors, published, config = measured(entry), entry.row.published, entry.row.config(0)
        lines.append(
            (
                title_of(entry),
                f"{published.error:.2f}" if published else NOTHING,
                spread(errors),
                f"{max(errors):.2f}" if errors else NOTHING,
                f"{reached(entry)} of {len(errors)}" if published and errors else NOTHING,
                spread([record.seconds for record in entry.records]),
                str(config.epochs),
                str(config.batch),
            )
        )
    names = ("dataset", "paper (%)", "error (%)", "worst (%)", "reached", "seconds", "epochs", "batch")
    return Table("Test error at the end, and seconds of training", names, tuple(lines))


def held_out_table(entries: Sequence[Entry]) -> Table:
    """A line for each combination of settings, by dataset, the best first."""
    order = {entry.row.dataset: place for place, entry in reversed(list(enumerate(entries)))}
    done = [entry for entry in entries if entry.records]
    done.sort(key=lambda entry: (order[entry.row.dataset], statistics.mean(measured(entry))))
    lines = [
        (title_of(entry), entry.row.system, spread(measured(entry)), spread([each.seconds for each in entry.records]))
        for entry in done
    ]
    return Table("Held-out error at the end", ("dataset", "settings", "error (%)", "seconds"), tuple(lines))


def numbers(entries: Sequence[Entry]) -> Table:
    """The same for programs."""
    lines = []
    for entry in entries:
        errors, published, config = measured(entry), entry.row.published, entry.row.config(0)
        lines.append(
            (
                entry.row.dataset,
                entry.row.system,
                f"{published.error:g}" if published else NOTHING,
                str(reached(entry)) if published and errors else NOTHING,
                *columns(errors),
                *columns([record.seconds for record in entry.records])[:2],
                str(config.epochs),
                str(config.batch),
                entry.parameters.replace(",", ""),
            )
        )
    names = ("dataset", "settings", "paper_error", "reached", "error", "error_deviation", "seeds", "seconds")
    return Table("", (*names, "seconds_deviation", "epochs", "batch", "parameters"), tuple(lines))


def seconds_figure(entries: Sequence[Entry], path: Path) -> None:
    """A row for each dataset: the error of every seed as a multiple of the paper's, beside the seconds it took."""
    shown = [entry for entry in entries if entry.records]
    figure = new_figure(WIDTH, 1.5 + 0.62 * len(shown))
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    compared = all(entry.row.published for entry in shown)
    across = "error, as a multiple of the paper's" if compared else "error (%)"
    dress(left, "Test error at the end", across, "")
    dress(right, "Seconds of training", "seconds", "")
    for place, entry in enumerate(shown):
        published = entry.row.published
        scale = published.error if compared and published else 1.0
        _strip(left, place, [error / scale for error in measured(entry)], f"{statistics.mean(measured(entry)):.2f}%")
        seconds = [record.seconds for record in entry.records]
        _strip(right, place, seconds, f"{statistics.mean(seconds):.1f} s")
    for axes in (left, right):
        axes.grid(False)
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlim(0, 1.2 * max(axes.get_xlim()[1], 1.0 if axes is left and compared else 0.0))  # room for labels
        axes.tick_params(axis="y", length=0, labelsize=TEXT)
    left.set_yticks(range(len(shown)), [literal(_row_title(entry)) for entry in shown])
    right.set_yticks(range(len(shown)), [""] * len(shown))
    handles = [
        Line2D([], [], color=BEST.colour, marker="o", linestyle="", alpha=0.6, label="one seed"),
        Line2D([], [], color=INK, marker="|", markersize=12, markeredgewidth=2, linestyle="", label="mean"),
    ]
    if compared:
        left.axvline(1.0, color=MUTED, linewidth=1.4, linestyle=(0, (4, 2)), zorder=1)
        handles.append(Line2D([], [], color=MUTED, linestyle=(0, (4, 2)), label="the paper's error"))
    figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False, fontsize=TEXT)
    save(figure, path)


def _strip(axes: Axes, place: int, values: Sequence[float], label: str) -> None:
    """The values of all seeds along a line, their mean, and its label right of them."""
    axes.axhline(place, color=RULE, linewidth=0.8, zorder=0)
    lifts = [0.12 * ((number % 3) - 1) for number in range(len(values))]
    marks = [place + lift for lift in lifts] if len(values) > 1 else [place]
    axes.plot(values, marks, "o", color=BEST.colour, alpha=0.6, markersize=6, markeredgewidth=0)
    axes.plot([statistics.mean(values)], [place], "|", color=INK, markersize=20, markeredgewidth=2)
    axes.annotate(
        label,
        (max(values), place),
        xytext=(9, 0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
    )


def measured(entry: Entry) -> list[float]:
    """The errors at the end, in %, on whatever the runs were measured on."""
    return entry.errors("test") or entry.errors("validation")


def reached(entry: Entry) -> int:
    """How many seeds came to the paper's error."""
    published = entry.row.published
    return sum(error <= published.error for error in measured(entry)) if published else 0


def title_of(entry: Entry) -> str:
    return DESCRIPTIONS[entry.row.dataset].title


def _row_title(entry: Entry) -> str:
    published = entry.row.published
    count = len(entry.records)
    seeds = f"{count} seed" + ("s" if count > 1 else "")
    return f"{title_of(entry)}\n" + (f"paper {published.error:.2f}%, {seeds}" if published else seeds)


def _write(path: Path, text: str) -> None:
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
