"""The Hugging Face Hub: networks as folders with `config.json`, `model.safetensors` and a model card, `README.md`."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from typing import Any

from quatcaps.errors import QuatcapsError
from quatcaps.files import make_folder, new_file, write_json
from quatcaps.models import Network
from quatcaps.tensors import plain_tensors, save_tensors
from quatcaps.weights.cards import Card
from quatcaps.weights.hub_page import CARD, page
from quatcaps.weights.saved import CONFIG, MODEL, Description, described_in_folder
from quatcaps.weights.zoo import card as card_of
from quatcaps.weights.zoo import digest, names

README = "README.md"


def save_pretrained(
    network: Network, folder: str | Path, *, repo_id: str = "", licence: str = "", card: Card | None = None
) -> Path:
    """Writes a network as a folder: `config.json`, `model.safetensors`, and a model card, `README.md`.

    `from_pretrained` and `load` read it back. Where the weights are published ones, or those of `card`, the model card
    has their errors, and the folder their `card.json`. repo_id: what the model card shows to load it by. licence: what
    the Hub shows, such as mit. What was there is replaced: `config.json` goes first and comes last, so that a folder
    which is not whole cannot be loaded.
    """
    description, place = Description.of(network), make_folder(Path(folder))
    with new_file(place / MODEL) as temporary:
        save_tensors(temporary, plain_tensors(network), {"format": "pt"})
        found = card_with(digest(temporary), card)
        for name in (CONFIG, CARD):
            (place / name).unlink(missing_ok=True)
    with new_file(place / README) as temporary:
        temporary.write_text(page(description, found, repo_id or place.name, licence), encoding="utf-8")
    if found is not None:
        with new_file(place / CARD) as temporary:
            temporary.write_text(json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write_json(place / CONFIG, description.to_json())
    return place


def card_with(sha256: str, given: Card | None) -> Card | None:
    """The card of a file with this digest: its errors are those of these very weights, and of no others."""
    if given is not None:
        if given.sha256 != sha256:
            raise QuatcapsError(
                f"the card of {given.name} is of other weights (sha256 {given.sha256[:12]}…) than the network's "
                f"({sha256[:12]}…): leave it out"
            )
        return given
    return next((card for card in map(card_of, names()) if card.sha256 == sha256), None)


def push_to_hub(
    network: Network,
    repo_id: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    message: str = "Upload a network of quatcaps",
    licence: str = "",
    card: Card | None = None,
    api: Any = None,
) -> str:
    """Uploads a network to a repository of the Hugging Face Hub, made where it is missing; returns its address.

    private, token, revision: as huggingface_hub has them; without a token, the one that `hf auth login` left is used.
    message: of the commit. licence, card: as in `save_pretrained`. api: a `huggingface_hub.HfApi` to use instead of a
    new one.
    """
    check_repository(repo_id)
    api = api or hub().HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(network, folder, repo_id=repo_id, licence=licence, card=card)
        try:
            address = api.create_repo(repo_id, repo_type="model", private=private, exist_ok=True)
            api.upload_folder(
                repo_id=repo_id, repo_type="model", folder_path=folder, revision=revision, commit_message=message
            )
        except Exception as error:  # whatever huggingface_hub and the library below it raise
            raise QuatcapsError(f"cannot upload to {repo_id}: {first_line(error)}") from error
    return str(address)


def from_pretrained(source: str | Path, *, revision: str | None = None, token: str | None = None) -> Network:
    """The network in a folder that `save_pretrained` wrote, or in a repository of the Hugging Face Hub; in evaluation
    mode on the CPU. Nothing is unpickled, and no code of the repository runs. revision, token: as huggingface_hub has
    them.

    >>> import tempfile, quatcaps
    >>> folder = quatcaps.load("qcn-mnist").save_pretrained(tempfile.mkdtemp())
    >>> from_pretrained(folder).class_names[:2]
    ('0', '1')
    """
    folder = Path(source)
    if not folder.is_dir():
        check_repository(str(source))
        library = hub()
        try:
            folder = Path(
                library.snapshot_download(str(source), revision=revision, token=token, allow_patterns=[CONFIG, MODEL])
            )
        except Exception as error:
            raise QuatcapsError(f"cannot get {source} from the Hugging Face Hub: {first_line(error)}") from error
    return described_in_folder(folder).network(folder / MODEL)


def check_repository(repo_id: str) -> None:
    owner, slash, name = repo_id.partition("/")
    if not (owner and slash and name) or "/" in name or owner.startswith((".", "~")):
        raise QuatcapsError(f"{repo_id!r} is neither a folder nor a repository: give OWNER/NAME, or a folder's path")


def hub() -> Any:
    """huggingface_hub, which not everybody has."""
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise QuatcapsError(
            "the Hugging Face Hub needs the package huggingface_hub: pip install 'quatcaps[hub]'"
        ) from error


def first_line(error: BaseException) -> str:
    words = str(error).strip().splitlines()
    return words[0] if words else type(error).__name__
