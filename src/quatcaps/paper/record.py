"""The record of a finished run: one JSON file with everything that a table needs, and enough to run it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from quatcaps.errors import QuatcapsError
from quatcaps.files import explained, read_json, write_json
from quatcaps.paper.row import Row
from quatcaps.training.config import TrainingConfig
from quatcaps.training.log import Record
from quatcaps.training.measure import Rate

FORMAT = 1
UNCOUNTED = frozenset({"device", "placement", "tensorboard", "checkpoint_every", "log_every", "averaging_beside"})
"""Settings that decide where a run is computed and what is kept of it, not what it learns."""


@dataclass(frozen=True)
class RunRecord:
    """A run that was trained to its end.

    epochs: what the run's log says of each epoch, errors as fractions. final: the errors at the end, counted over all
    images, by `test`, `novel` and `validation`. toys: of the validation images, by class and instance. seconds: spent
    training, without the measurements. digests: of the images, by name; none in records of earlier versions. poses:
    what `quatcaps.inspection` finds on the test images, where the row asks for it. by_toy: the final errors on `test`
    and `novel` images, by class and instance; none in records of earlier versions, and where images show no instances.
    missed: there instead the numbers of the test images that are misclassified at the end, in order.
    chosen: of a run that keeps its best checkpoint, the errors on the test images of that one, which the validation
    images chose, after `chosen_epoch` epochs. renormalised: the errors on the test images with statistics of batch
    normalisation that were measured anew at the end, where the row asks for them and the network has some. averaged:
    the same with the average of the weights, of a run that has one beside them.
    """

    key: str
    recipe: str
    seed: int
    config: TrainingConfig
    parameters: int
    data: str
    machine: str
    versions: dict[str, str]
    date: str
    seconds: float
    final: dict[str, Rate]
    epochs: tuple[Record, ...]
    toys: dict[str, Rate] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    poses: dict[str, Any] = field(default_factory=dict)
    by_toy: dict[str, dict[str, Rate]] = field(default_factory=dict)
    chosen: dict[str, Rate] = field(default_factory=dict)
    chosen_epoch: int = 0
    renormalised: dict[str, Rate] = field(default_factory=dict)
    averaged: dict[str, Rate] = field(default_factory=dict)
    missed: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def pairs(self) -> bool:
        """Whether it can be compared with others toy by toy, or image by image."""
        return all(self.tells(name) for name in ("test", "novel") if name in self.final)

    def tells(self, name: str) -> bool:
        """Whether it says which `test` or `novel` images, or of which toys, were misclassified."""
        if self.by_toy.get(name):
            return True
        return bool(self.digests.get(name)) and (name in self.missed or not self.final[name].errors)

    @property
    def last(self) -> Record:
        return self.epochs[-1]


def record_path(output: Path, key: str, seed: int) -> Path:
    """Where the record of a run lies."""
    return output / "runs" / key / f"seed-{seed}.json"


def errors_in(rates: Mapping[str, Rate]) -> int:
    return sum(rate.errors for rate in rates.values())


def write_record(path: Path, record: RunRecord) -> None:
    """Writes it whole or not at all."""
    value = {each.name: getattr(record, each.name) for each in fields(RunRecord)}
    value |= {
        "config": record.config.to_json(),
        "final": _counts(record.final),
        "epochs": list(record.epochs),
        "toys": _counts(record.toys),
        "by_toy": {name: _counts(rates) for name, rates in record.by_toy.items()},
        "chosen": _counts(record.chosen),
        "renormalised": _counts(record.renormalised),
        "averaged": _counts(record.averaged),
        "missed": {name: " ".join(map(str, images)) for name, images in record.missed.items()},
    }
    write_json(path, {"format": FORMAT, **value})


def read_record(path: Path) -> RunRecord:
    """The record in a file; an error that names the file where it is none. A file is read once for each of its states:
    tables, lists and the costs in them ask for the same records."""
    with explained(f"read {path}"):
        now = path.stat()
    return _read(path, (now.st_ino, now.st_mtime_ns, now.st_size))


@cache
def _read(path: Path, state: tuple[int, ...]) -> RunRecord:
    what = "the record of a run"
    value = read_json(path, what)
    if value.get("format") != FORMAT:
        raise QuatcapsError(
            f"{path} is not {what} of format {FORMAT}, which this version reads: its format is {value.get('format')!r}"
        )
    try:
        record = RunRecord(
            key=_as(str, value["key"]),
            recipe=_as(str, value["recipe"]),
            seed=_as(int, value["seed"]),
            config=TrainingConfig.from_json(_as(dict, value["config"])),
            parameters=_as(int, value["parameters"]),
            data=_as(str, value["data"]),
            machine=_as(str, value["machine"]),
            versions={name: _as(str, version) for name, version in _as(dict, value["versions"]).items()},
            date=_as(str, value["date"]),
            seconds=_as(float, value["seconds"]),
            final=_rates(value["final"]),
            epochs=tuple(_epoch(entry) for entry in _as(list, value["epochs"])),
            toys=_rates(value["toys"]),
            digests={name: _as(str, digest) for name, digest in _as(dict, value.get("digests", {})).items()},
            poses=_poses(_as(dict, value.get("poses", {}))),
            by_toy={name: _rates(counted) for name, counted in _as(dict, value.get("by_toy", {})).items()},
            chosen={name: _rate(counted) for name, counted in _as(dict, value.get("chosen", {})).items()},
            chosen_epoch=_as(int, value.get("chosen_epoch", 0)),
            renormalised={name: _rate(counted) for name, counted in _as(dict, value.get("renormalised", {})).items()},
            averaged={name: _rate(counted) for name, counted in _as(dict, value.get("averaged", {})).items()},
            missed={name: _numbers(images) for name, images in _as(dict, value.get("missed", {})).items()},
        )
    except KeyError as error:
        raise QuatcapsError(f"{path} is not {what}: it has no {error.args[0]}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise QuatcapsError(f"{path} is not {what}: {error}") from error
    missing = {"quatcaps", "torch"} - record.versions.keys()
    if missing:
        raise QuatcapsError(f"{path} is not {what}: its versions do not say which {' and '.join(sorted(missing))}")
    if len(record.epochs) != record.config.epochs or not record.final:
        raise QuatcapsError(
            f"{path} is not {what}: it has {len(record.epochs)} of {record.config.epochs} epochs and "
            f"{len(record.final)} final errors"
        )
    for name, rates in record.by_toy.items():
        final, errors = record.final.get(name), errors_in(rates)
        if rates and (final is None or errors != final.errors):
            raise QuatcapsError(
                f"{path} is not {what}: its {name} errors by toy are {errors}, the final ones {final and final.errors}"
            )
    for name, missed in record.missed.items():
        final = record.final.get(name)
        if final is None or len(missed) != final.errors or missed[-1:] >= (final.images,):
            raise QuatcapsError(
                f"{path} is not {what}: it names {len(missed)} misclassified {name} images, the last {missed[-1:]}; "
                f"the final errors are {final}"
            )
    if record.seed != record.config.seed or path.parts[-len(record.key.split("/")) - 1 :] != (
        *record.key.split("/"),
        f"seed-{record.seed}.json",
    ):
        raise QuatcapsError(f"{path} holds another run, {record.key} with seed {record.seed}: move it to its own place")
    return record


def twin_record(output: Path, row: Row, seed: int) -> RunRecord | None:
    """The record of another table's row that can stand for a row's own: of the same seed and settings."""
    path = record_path(output, row.twin, seed)
    if not row.twin or not path.exists():
        return None
    try:
        record = read_record(path)
    except QuatcapsError:
        return None  # its own table says so
    return None if differences(record.config, row.config(seed)) else record


def differences(recorded: TrainingConfig, wanted: TrainingConfig) -> dict[str, tuple[Any, Any]]:
    """The settings in which two configurations differ, but for those that change nothing that is learned."""
    before, after = recorded.whole(), wanted.whole()
    return {
        name: (before[name], after[name]) for name in after if name not in UNCOUNTED and before[name] != after[name]
    }


def told(differing: Mapping[str, tuple[Any, Any]]) -> str:
    """Differences in words.

    >>> told({"epochs": (300, 200), "flip": (False, True)})
    'epochs was 300, is 200; flip was False, is True'
    """
    return "; ".join(f"{name} was {before}, is {after}" for name, (before, after) in differing.items())


def _as(kind: type, value: Any) -> Any:
    """`value`, which must be of that kind; a whole number is a number too."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _counts(rates: Mapping[str, Rate]) -> dict[str, Any]:
    return {name: asdict(rate) for name, rate in rates.items()}


def _rates(counted: Any) -> dict[str, Rate]:
    return {name: _rate(each) for name, each in _as(dict, counted).items()}


def _rate(counted: Any) -> Rate:
    rate = Rate(_as(int, _as(dict, counted)["errors"]), _as(int, counted["images"]))
    if not 0 <= rate.errors <= rate.images or not rate.images:
        raise ValueError(f"{rate.errors} errors in {rate.images} images")
    return rate


def _numbers(text: Any) -> tuple[int, ...]:
    """Numbers of images, each larger than the one before."""
    found = tuple(int(word) for word in _as(str, text).split())
    if any(number < 0 for number in found[:1]) or any(one >= other for one, other in pairwise(found)):
        raise ValueError(f"numbers of images that are not in order: {text[:40]!r}")
    return found


def _poses(found: dict[str, Any]) -> dict[str, Any]:
    """The same, after looking for what tables are made of."""
    if found:
        probes = [*_as(dict, found["within"]).values(), *_as(dict, found["across"]).values()]
        numbers = [_as(dict, probe)["azimuth_r2"] for probe in probes]
        numbers += [_as(dict, each)[name] for each in _as(list, found["transfer"]) for name in ("turn", "ratio")]
        if found["residual"] is not None:
            numbers.append(_as(dict, found["residual"])["poses"])
        if found["orientation"] is not None:
            numbers += [_as(dict, found["orientation"])[name] for name in ("median_degrees", "within_10", "within_30")]
        for number in numbers:
            _as(float, number)
    return found


def _epoch(entry: Any) -> Record:
    _ = _as(int, _as(dict, entry)["epoch"])
    _ = _as(int, entry.get("step", 0)), _as(float, entry.get("seconds", 0.0))
    for name, value in entry.items():
        counts = name == "error" or (name.endswith("_error") and value is not None)
        if counts and not 0 <= _as(float, value) <= 1:
            raise ValueError(f"{name} is {value} in an epoch: it must be from 0 to 1")
    return dict(entry)
