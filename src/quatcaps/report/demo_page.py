"""The demo's folder: its tables, its pictures, and one page that shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quatcaps.data.imageset import ImageSet
from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder, new_file, write_json
from quatcaps.report import page
from quatcaps.report.canvas import places
from quatcaps.report.figures import contact_sheet, error_by_viewpoint, evaluation_figure, training_curves
from quatcaps.report.tables import Table, confused_pairs, evaluation_tables, markdown_text, percent
from quatcaps.training.log import Record
from quatcaps.training.measure import Evaluation

TITLE = "Quaternion Capsule Networks: the demo"
GO_ON = {
    ".venv/bin/quatcaps train --help": "Train a network of your own; this lists the settings:",
    ".venv/bin/quatcaps evaluate RUN": "Measure a trained network again; RUN is the folder of its run:",
    ".venv/bin/quatcaps predict RUN IMAGE": "Name the class of an image:",
}


@dataclass(frozen=True)
class Contender:
    """One network of the demo: `summary` says what it is ("a plain CNN"), `seconds` how long it trained."""

    name: str
    summary: str
    parameters: int
    seconds: float
    familiar: Evaluation
    novel: Evaluation
    log: list[Record]


def write_demo(
    folder: Path,
    contenders: Sequence[Contender],
    samples: ImageSet,
    everything: Mapping[str, Evaluation],
    settings: Mapping[str, str],
    commands: Mapping[str, str] = GO_ON,
) -> Path:
    """Writes pictures, tables and `index.html` into `folder`; the page's path.

    `everything` has each contender's evaluation over familiar and novel azimuths together; `commands` are those to go
    on with, and what each does.
    """
    pictures = confusion_names(contenders, everything)
    make_folder(folder)
    around = tuple(contenders[0].familiar.by_azimuth)
    contact_sheet(samples, folder / "samples.png")
    training_curves({contender.name: contender.log for contender in contenders}, folder / "training.png")
    shown = {
        contender.name: replace(
            everything[contender.name], name=f"{contender.name} on {everything[contender.name].name}"
        )
        for contender in contenders
    }
    error_by_viewpoint(shown, "azimuth", around, folder / "azimuth.png")
    for name, file in pictures.items():
        evaluation_figure(shown[name], folder / file, around)
    result, used = result_table(contenders), settings_table(settings)
    write_json(folder / "results.json", results(contenders, everything, settings))
    write_text(folder / "results.csv", result.csv())
    write_text(folder / "results.md", summary(contenders, result, used))
    parts = [
        page.paragraph(introduction(contenders)),
        page.section("Result", page.table(result), page.paragraph(findings(contenders))),
        page.section("Sample views", sample_views(folder, samples)),
        page.section("Training", curves(folder, contenders)),
        page.section("Error by azimuth", error_by_azimuth(folder, contenders)),
        page.section("Which classes are confused", *confusions(folder, contenders, pictures, shown)),
        page.section("Settings", page.table(used)),
        page.section("Going on", page.commands(commands), page.paragraph(files_text(pictures))),
    ]
    return page.write_page(folder / "index.html", TITLE, parts)


def summary(contenders: Sequence[Contender], result: Table, used: Table) -> str:
    """The page's essence in Markdown."""
    pictures = {"Sample views": "samples", "Training": "training", "Error by azimuth": "azimuth"}
    parts = [
        f"# {TITLE}",
        markdown_text(introduction(contenders)),
        result.markdown(),
        markdown_text(findings(contenders)),
        *(f"![{title}]({file}.png)" for title, file in pictures.items()),
        used.markdown(),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def confusion_names(contenders: Sequence[Contender], everything: Mapping[str, Evaluation]) -> dict[str, str]:
    """The file of each contender's confusion matrix, by the contender's name."""
    if not contenders:
        raise QuatcapsError("the demo has no network to show: give at least one contender")
    files = {contender.name: f"confusion-{file_part(contender.name)}.png" for contender in contenders}
    if len(set(files.values())) < len(contenders):
        raise QuatcapsError(f"two contenders share a name among {', '.join(c.name for c in contenders)}: rename one")
    for name in files:
        if name not in everything:
            raise QuatcapsError(f"{name} has no evaluation over all azimuths: give one for each contender")
    return files


def file_part(name: str) -> str:
    """A name without what files' names cannot have everywhere."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


def result_table(contenders: Sequence[Contender]) -> Table:
    return Table(
        "Error on toys that were not seen in training",
        ("network", "parameters", "familiar error (%)", "novel error (%)", "training (min)"),
        tuple(
            (
                contender.name,
                f"{contender.parameters:,}",
                percent(contender.familiar.total),
                percent(contender.novel.total),
                f"{contender.seconds / 60:.1f}",
            )
            for contender in contenders
        ),
    )


def settings_table(settings: Mapping[str, str]) -> Table:
    return Table("What this run was told to do", ("setting", "value"), tuple(settings.items()))


def introduction(contenders: Sequence[Contender]) -> str:
    """What was done, in plain sentences."""
    first = contenders[0]
    classes = first.familiar.classes
    around = list(places("azimuth", first.familiar.by_azimuth))
    subject = joined([f"{contender.summary} ({contender.name})" for contender in contenders])
    return (
        f"{subject[:1].upper()}{subject[1:]} {'was' if len(contenders) == 1 else 'were'} trained on rendered toys seen "
        f"from {len(around)} azimuths ({joined([f'{angle}°' for angle in around])}), then tested on toys that were not "
        f"in the training set: from the same azimuths (familiar) and from the {len(first.novel.by_azimuth)} others "
        f"(novel). There are {len(classes)} classes: {joined(classes)}. Naming one of them at random is wrong "
        f"{100 * (1 - 1 / len(classes)):.3g}% of the time."
    )


def findings(contenders: Sequence[Contender]) -> str:
    """What the numbers of this run say, and no more."""
    changes = [
        f"{contender.novel.total.percent - contender.familiar.total.percent:+.1f} points for {contender.name}"
        for contender in contenders
    ]
    sentences = [f"From familiar to novel azimuths the error changes by {joined(changes)}."]
    if len(contenders) > 1:
        familiar = least({contender.name: contender.familiar.total.percent for contender in contenders})
        novel = least({contender.name: contender.novel.total.percent for contender in contenders})
        both = f"{familiar} on familiar and on novel azimuths"
        apart = f"{familiar} on familiar azimuths and {novel} on novel ones"
        sentences.insert(0, f"The smallest error in this run is that of {both if familiar == novel else apart}.")
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
        "Training loss, each network by its own, and error on training and test images, after each epoch. The test "
        "images are only measured: "
        "nothing is chosen by them.",
    )


def error_by_azimuth(folder: Path, contenders: Sequence[Contender]) -> page.Html:
    totals = [
        f"{contender.name} {contender.familiar.total.percent:.1f}% familiar, {contender.novel.total.percent:.1f}% novel"
        for contender in contenders
    ]
    return page.picture(
        folder / "azimuth.png",
        f"Line plot of the error against the azimuth. Mean errors: {'; '.join(totals)}.",
        "Error from each azimuth. The shaded azimuths were seen in training; the circle is cut open opposite them.",
    )


def confusions(
    folder: Path, contenders: Sequence[Contender], pictures: Mapping[str, str], shown: Mapping[str, Evaluation]
) -> list[page.Html]:
    parts = []
    for contender in contenders:
        evaluation = shown[contender.name]
        caption = f"{contender.name}, all azimuths together: {evaluation.total.percent:.1f}% error."
        alt = f"Confusion matrix and bars of the error by class, azimuth and elevation. {worst_confusion(evaluation)}"
        parts.append(page.picture(folder / pictures[contender.name], alt, caption))
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


def files_text(pictures: Mapping[str, str]) -> str:
    files = ["results.json", "results.csv", "results.md", "samples.png", "training.png", "azimuth.png"]
    return f"Beside this page lie the numbers and pictures as files: {joined([*files, *pictures.values()])}."


def results(
    contenders: Sequence[Contender], everything: Mapping[str, Evaluation], settings: Mapping[str, str]
) -> dict[str, Any]:
    """All numbers of the demo, for programs."""
    return {
        "settings": dict(settings),
        "networks": [
            {
                "name": contender.name,
                "summary": contender.summary,
                "parameters": contender.parameters,
                "training_seconds": contender.seconds,
                "familiar": contender.familiar.to_json(),
                "novel": contender.novel.to_json(),
                "all": everything[contender.name].to_json(),
                "epochs": [record for record in contender.log if record["kind"] == "epoch"],
            }
            for contender in contenders
        ],
    }


def write_text(path: Path, text: str) -> None:
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
