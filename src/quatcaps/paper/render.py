"""The tables as files: Markdown to read, CSV for programs, a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quatcaps.files import new_file
from quatcaps.paper.collection import Entry, collect, outdated
from quatcaps.paper.row import Row
from quatcaps.paper.tables import Page, page
from quatcaps.report.tables import markdown_text

QUICK = (
    "A quick run: narrowed networks, an epoch or two of the small rendered toys in place of every dataset. It shows "
    "that everything works, and says nothing about the paper's numbers, which are left out."
)


def render(name: str, rows: Sequence[Row], output: Path, *, quick: bool = False) -> tuple[Page, list[str]]:
    """Writes `NAME.md`, `NAME.csv` and `NAME.png` into `output` from the records there; also gives what is wrong with
    records that cannot be read, which are left out."""
    from quatcaps.paper.figures import draw  # matplotlib is slow to import

    entries, problems = collect([row for row in rows if name in row.tables], output)
    made = page(name, entries, quoted=not quick)
    draw(name, entries, output / f"{name}.png", quoted=not quick)
    _write(output / f"{name}.csv", made.numbers.csv())
    _write(output / f"{name}.md", document(name, made, entries, quick=quick))
    return made, problems


def document(name: str, made: Page, entries: Sequence[Entry], *, quick: bool) -> str:
    """The Markdown page."""
    notes = [*([QUICK] if quick else []), *made.notes, made_with(f"reproduce {name}", entries, quick=quick)]
    stale = outdated(entries)
    if stale:
        notes.append(
            "Recorded with other settings than the rows have now:\n" + "".join(f"- {each}\n" for each in stale)
        )
    parts = [
        f"# {made.title}",
        *(table.markdown().rstrip() for table in made.tables),
        f"![{made.title}]({name}.png)",
        *(note.rstrip() for note in notes),
    ]
    return "\n\n".join(parts) + "\n"


def made_with(command: str, entries: Sequence[Entry], *, quick: bool) -> str:
    """The command, the machines, the dates, the data and the versions."""
    records = [record for entry in entries for record in entry.records]
    command = f"quatcaps {command}{' --quick' if quick else ''}"
    if not records:
        return f"Nothing has been measured yet: `{command}`."
    dates = sorted({record.date for record in records})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machines = ", ".join(sorted({record.machine for record in records}))
    versions = ", ".join(
        sorted({f"quatcaps {record.versions['quatcaps']} with torch {record.versions['torch']}" for record in records})
    )
    data = "; ".join(sorted({f"{record.config.dataset}: {record.data or 'rendered here'}" for record in records}))
    return (
        f"Made by `{command}` from {len(records)} records in `runs/`, {days}, on {markdown_text(machines)}, by "
        f"{versions}. Training time is without measurements. Data: {markdown_text(data)}."
    )


def _write(path: Path, text: str) -> None:
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
