"""`quatcaps models`."""

from __future__ import annotations

from quatcaps.cli.machine import AsJson, print_json
from quatcaps.console import say, standard_output


def models(as_json: AsJson = False) -> None:
    """The networks: parameters by dataset, votes and operations per image."""
    from quatcaps.models import MODELS
    from quatcaps.poses import list_poses
    from quatcaps.report.networks import models_table, sizes
    from quatcaps.routing import list_routings

    if as_json:
        found = [{**vars(each), "summary": MODELS[each.name].summary} for each in sizes()]
        print_json({"models": found, "poses": list_poses(), "routings": list_routings()})
        return
    console = standard_output()
    console.print(models_table().rich(console.width))
    for name, model in MODELS.items():
        say(console, f"{name}: {model.summary}")
    for kind, names in (("poses", list_poses()), ("routings", list_routings())):
        say(console, f"{kind}: {', '.join(names)}")
    say(
        console,
        "FashionMNIST has MNIST's numbers. Train one with quatcaps train --model NAME; change it with --model-setting "
        "NAME=VALUE, such as pose=matrix, routing=vb or routing.iterations=3.",
    )
