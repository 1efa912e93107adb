"""The demo's folder: its tables, its pictures, and one page that shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder, new_file, write_json
from quatcaps.report import page
from quatcaps.report.figures import contact_sheet, evaluation_figure, training_curves
from quatcaps.report.mistakes import Gallery, mistakes_sheet
from quatcaps.report.orientations import orientation_curves
from quatcaps.report.tables import Table, confused_pairs, evaluation_tables, markdown_text, percent
from quatcaps.training.log import Record
from quatcaps.training.measure import Evaluation
from quatcaps.training.poses import CHANCE, NEAR, PoseErrors

TITLE = "Quaternion Capsule Networks: what is it, and how is it turned?"
GO_ON = {
    ".venv/bin/quatcaps train --help": "Train a network of your own; this lists the settings:",
    ".venv/bin/quatcaps evaluate RUN": "Measure a trained network again; RUN is the folder of its run:",
    ".venv/bin/quatcaps explore RUN": "Turn a toy in your browser, and watch the capsules:",
}


@dataclass(frozen=True)
class Contender:
    """One network of the demo: `summary` says what it is ("a plain CNN"), `seconds` how long it trained. The
    evaluation on the test toys has the errors of its poses; `degrees` are those of each image."""

    name: str
    summary: str
    parameters: int
    seconds: float
    evaluation: Evaluation
    degrees: Tensor  # (N,)
    log: list[Record]
    loss: str  # what it minimises, in words
    activations: Tensor  # (N, classes) of the test images

    @property
    def poses(self) -> PoseErrors:
        if self.evaluation.poses is None:
            raise QuatcapsError(f"{self.name} has no errors of poses: train it with a pose objective")
        return self.evaluation.poses


def write_demo(
    folder: Path,
    contenders: Sequence[Contender],
    samples: ImageSet,
    settings: Mapping[str, str],
    explorer: str | None = None,
    commands: Mapping[str, str] = GO_ON,
) -> Path:
    """Writes pictures, tables and `index.html` into `folder`; the page's path.

    explorer: the name of an exported explorer in the same folder. commands: those to go on with, and what each does.
    """
    pictures = confusion_names(contenders)
    make_folder(folder)
    contact_sheet(samples, folder / "samples.png")
    logs = {contender.name: contender.log for contender in contenders}
    training_curves(logs, {contender.name: contender.loss for contender in contenders}, folder / "training.png")
    orientation_curves({contender.name: contender.degrees for contender in contenders}, folder / "orientation.png")
    for contender in contenders:
        evaluation = contender.evaluation
        named = replace(evaluation, name=f"{contender.name} on {evaluation.name}")
        evaluation_figure(named, folder / pictures[contender.name], network=contender.name)
    mistakes = {each.name: draw_mistakes(folder, each, samples) for each in contenders}
    files = [*pictures.values(), *(each.path.name for each in mistakes.values() if each.path)]
    result, used = result_table(contenders), settings_table(settings)
    write_json(folder / "results.json", results(contenders, settings))
    write_text(folder / "results.csv", result.csv())
    write_text(folder / "results.md", summary(contenders, result, used))
    parts = [
        page.paragraph(introduction(contenders)),
        page.section("Result", page.table(result), page.paragraph(findings(contenders))),
        *([] if explorer is None else [turn_it(explorer)]),
        page.section("How far off is the orientation?", orientations(folder, contenders)),
        page.section("Sample views", sample_views(folder, samples)),
        page.section("Training", curves(folder, contenders)),
        page.section("Which classes are confused", *confusions(folder, contenders, pictures, mistakes)),
        page.section("Settings", page.table(used)),
        page.section("Going on", page.commands(commands), page.paragraph(files_text(files, explorer))),
    ]
    return page.write_page(folder / "index.html", TITLE, parts)


def turn_it(explorer: str) -> page.Html:
    """The exported explorer, inside the page."""
    return page.section(
        "Turn a toy yourself",
        page.paragraph(
            "These two networks look at five of the test toys. Drag a toy, or use the arrow keys: the class that each "
            "network names, the pose of that class beside the toy’s true orientation, and which parts voted for it "
            "change with it."
        ),
        page.embedded(explorer, "Explorer: the two networks on five test toys"),
    )


def summary(contenders: Sequence[Contender], result: Table, used: Table) -> str:
    """The page's essence in Markdown."""
    pictures = {
        "Share of test images within an angle": "orientation",
        "Sample views": "samples",
        "Training": "training",
    }
    parts = [
        f"# {TITLE}",
        markdown_text(introduction(contenders)),
        result.markdown(),
        markdown_text(findings(contenders)),
        *(f"![{title}]({file}.png)" for title, file in pictures.items()),
        used.markdown(),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def confusion_names(contenders: Sequence[Contender]) -> dict[str, str]:
    """The file of each contender's confusion matrix, by the contender's name."""
    if not contenders:
        raise QuatcapsError("the demo has no network to show: give at least one contender")
    files = {contender.name: f"confusion-{file_part(contender.name)}.png" for contender in contenders}
    if len(set(files.values())) < len(contenders):
        raise QuatcapsError(f"two contenders share a name among {', '.join(c.name for c in contenders)}: rename one")
    for contender in contenders:
        assert contender.poses is not None
    return files


def file_part(name: str) -> str:
    """A name without what files' names cannot have everywhere."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def result_table(contenders: Sequence[Contender]) -> Table:
    return Table(
        "On toys of kinds that were not seen in training",
        (
            "network",
            "parameters",
            "class error (%)",
            "orientation error, median (°)",
            *(f"within {near}° (%)" for near in NEAR),
            "training (min)",
        ),
        tuple(
            (
                contender.name,
                f"{contender.parameters:,}",
                percent(contender.evaluation.total),
                f"{contender.poses.median:.1f}",
                *(f"{100 * share:.1f}" for share in contender.poses.within),
                f"{contender.seconds / 60:.1f}",
            )
            for contender in contenders
        ),
    )


def settings_table(settings: Mapping[str, str]) -> Table:
    return Table("What this run was told to do", ("setting", "value"), tuple(settings.items()))


def introduction(contenders: Sequence[Contender]) -> str:
    """What was done, in plain sentences."""
    evaluation = contenders[0].evaluation
    classes = evaluation.classes
    subject = joined([f"{contender.summary} ({contender.name})" for contender in contenders])
    return (
        f"{subject[:1].upper()}{subject[1:]} {'was' if len(contenders) == 1 else 'were'} trained on rendered toys to "
        f"do two things: name the toy, and say how it is turned. The test set has {evaluation.total.images:,} images "
        f"of {len(evaluation.by_instance)} toys of other kinds. There are {len(classes)} classes: {joined(classes)}. A "
        f"random name is wrong {100 * (1 - 1 / len(classes)):.3g}% of the time, and a random orientation is "
        f"{CHANCE:.0f}° off in the median."
    )


def findings(contenders: Sequence[Contender]) -> str:
    """What the numbers of this run say, and no more."""
    sentences = []
    if len(contenders) > 1:
        named = least({contender.name: contender.evaluation.total.percent for contender in contenders})
        turned = least({contender.name: contender.poses.median for contender in contenders})
        both = f"{named} names more of the toys and reads their orientation more closely."
        apart = f"{named} names more of the toys; {turned} reads their orientation more closely."
        sentences.append(both if named == turned else apart)
    for contender in contenders:
        right = 100 - contender.evaluation.total.percent
        sentences.append(
            f"{contender.name} names {right:.1f}% of the images, and is within {NEAR[-1]}° of the orientation in "
            f"{100 * contender.poses.within[-1]:.0f}% of them."
        )
    sentences.append("This is one run of each network: another seed gives other numbers.")
    return " ".join(sentences)


def least(errors: Mapping[str, float]) -> str:
    """Whose error is smallest; several names where they are equal."""
    smallest = min(errors.values())
    return joined([name for name, error in errors.items() if error == smallest])


def joined(words: Sequence[str]) -> str:
    """Words with commas and a last "and"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def sample_views(folder: Path, samples: ImageSet) -> page.Html:
    return page.picture(
        folder / "samples.png",
        f"Rows of small grey pictures, one row for each class: {joined(samples.classes)}.",
        "What the networks see: each row is a class, seen from different azimuths and elevations.",
    )


def curves(folder: Path, contenders: Sequence[Contender]) -> page.Html:
    names = joined([contender.name for contender in contenders])
    return page.picture(
        folder / "training.png",
        f"Two line plots against the epoch for {names}: the training loss, and the error on training and test images.",
        "Training loss (classes and poses together) and class error on training and test images, after each epoch. The "
        "test images are only measured: nothing is chosen by them.",
    )


def orientations(folder: Path, contenders: Sequence[Contender]) -> page.Html:
    medians = joined([f"{contender.name} {contender.poses.median:.1f}°" for contender in contenders])
    return page.picture(
        folder / "orientation.png",
        f"Line plot: the share of test images whose orientation is read within an angle. Medians: {medians}.",
        "The share of test images whose orientation is read within an angle; the dotted line is that of random "
        "orientations. A step near 180° means toys taken back to front.",
    )


def draw_mistakes(folder: Path, contender: Contender, samples: ImageSet) -> Gallery:
    """The gallery of a contender's mistakes."""
    named = replace(samples, name=f"{contender.name} on {samples.name}")
    return mistakes_sheet(named, contender.activations, folder / f"mistakes-{file_part(contender.name)}.png")


def confusions(
    folder: Path,
    contenders: Sequence[Contender],
    pictures: Mapping[str, str],
    mistakes: Mapping[str, Gallery],
) -> list[page.Html]:
    parts = []
    for contender in contenders:
        evaluation = contender.evaluation
        caption = f"{contender.name}: {evaluation.total.percent:.1f}% error."
        alt = f"Confusion matrix and bars of the error by class, azimuth and elevation. {worst_confusion(evaluation)}"
        parts.append(page.picture(folder / pictures[contender.name], alt, caption))
        gallery = mistakes[contender.name]
        told = f"{contender.name}: {gallery.words}"
        if gallery.path is None:
            parts.append(page.paragraph(f"{told}."))
        else:
            alt = f"Small pictures of toys that {contender.name} misnamed, with the class given and the true class."
            shown = page.picture(gallery.path, alt, f"{told}, those first of which it was surest.")
            parts.append(page.folded(f"The mistakes of {contender.name}", shown))
        tables = [page.table(table) for table in evaluation_tables(evaluation)]
        parts.append(page.folded(f"The numbers of {contender.name} as tables", *tables))
    return parts


def worst_confusion(evaluation: Evaluation) -> str:
    """The commonest wrong name, in a sentence."""
    pairs = confused_pairs(evaluation, 1)
    if not pairs:
        return "No image was misnamed."
    ((shown, named, count),) = pairs
    return (
        f"The commonest error: {evaluation.classes[shown]} taken for {evaluation.classes[named]}, in {count:,} images."
    )


def files_text(pictures: Sequence[str], explorer: str | None) -> str:
    files = ["results.json", "results.csv", "results.md", "orientation.png", "samples.png", "training.png"]
    files += [*pictures, *([] if explorer is None else [explorer])]
    return f"Beside this page lie the numbers and pictures as files: {joined(files)}."


def results(contenders: Sequence[Contender], settings: Mapping[str, str]) -> dict[str, Any]:
    """All numbers of the demo, for programs."""
    return {
        "settings": dict(settings),
        "networks": [
            {
                "name": contender.name,
                "summary": contender.summary,
                "parameters": contender.parameters,
                "training_seconds": contender.seconds,
                "test": contender.evaluation.to_json(),
                "epochs": [record for record in contender.log if record["kind"] == "epoch"],
            }
            for contender in contenders
        ],
    }


def write_text(path: Path, text: str) -> None:
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
