"""Cards for people: a table of several, a page of Markdown for one."""

from __future__ import annotations

import json
from collections.abc import Sequence

from quatcaps.report.tables import Table, percent
from quatcaps.weights.cards import Card


def list_table(cards: Sequence[Card]) -> Table:
    """One row for each card."""
    columns = ("name", "model", "dataset", "parameters", "error (%)", "file (kB)")
    return Table("", columns, tuple(_row(card) for card in cards))


def how_chosen(cards: Sequence[Card]) -> str:
    """How each came to be the one of its name: a list alone would show the lowest of several seeds as what the network
    has."""
    return "\n".join(f"{card.name}: {card.chosen}" for card in cards)


def page(card: Card) -> str:
    """Everything on a card, as Markdown."""
    facts = Table("", ("entry", "value"), tuple(facts_of(card).items()))
    errors = Table(
        "Error",
        ("images", "error (%)", "errors", "of"),
        tuple((name, percent(rate), f"{rate.errors:,}", f"{rate.images:,}") for name, rate in card.error.items()),
    )
    configuration = Table(
        "Configuration",
        ("setting", "value"),
        tuple((name, _text(value)) for name, value in card.config.to_json().items()),
    )
    use = f"```\nquatcaps evaluate --weights {card.name}\nquatcaps predict --weights {card.name} IMAGE\n```\n"
    trained = f"Trained with\n```\n{card.command}\n```\n"
    return "\n".join((f"# {card.name}\n", facts.markdown(), errors.markdown(), use, trained, configuration.markdown()))


def facts_of(card: Card) -> dict[str, str]:
    """What a card says in one line each."""
    height, width = card.size
    seen, several = card.config.seen(card.size), card.config.looked_at
    looked = f", the error by the mean activations of {several}" if several else ""
    return {
        "model": f"{card.model}, {card.parameters:,} parameters",
        "images": f"{card.channels}×{height}×{width}, of which the network sees {seen[0]}×{seen[1]}{looked}",
        "classes": ", ".join(card.classes),
        "data": f"{card.dataset} ({card.provenance or 'provenance unknown'})",
        "number of images": ", ".join(f"{name} {count:,}" for name, count in card.images.items()),
        "chosen": card.chosen,
        "error measured on": card.measured_on,
        "trained on": f"{card.machine}, {card.seconds:,.0f} s",
        "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
        "sha256": card.sha256,
        "bytes": f"{card.bytes:,}",
        "licence": card.licence,
    }


def _row(card: Card) -> tuple[str, ...]:
    rates = list(card.error.items())
    alone = len(rates) == 1 and rates[0][0] == "test"
    error = percent(rates[0][1]) if alone else ", ".join(f"{name} {percent(rate)}" for name, rate in rates)
    return (card.name, card.model, card.dataset, f"{card.parameters:,}", error, f"{card.bytes / 1000:,.0f}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
