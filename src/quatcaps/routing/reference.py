"""The specification of routing's sums: every vote formed once, every sum written out.

Letters of shapes: N images, P parent positions, B children in a window (places × child types), J parent types,
R × C a pose's rows and columns (D = R·C numbers). Votes lie as (B, J, C, R, N·P): sums over children, over pose
dimensions and the softmax over parents all leave the long last dimension contiguous.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from quatcaps.routing.moments import Moments, Parents
from quatcaps.routing.shapes import Shapes
from quatcaps.routing.window import Window

PIECE = 2**24
"""Numbers of votes that `InPieces` forms at a time, or those of one image if they are more."""


def bind(poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes, iterations: int = 1) -> FormedVotes:
    """Forms all votes v_ij = A_ij u_i of a layer, with the window's coordinates added where it has them."""
    window, columns, rows = shapes.window, shapes.columns, shapes.rows
    positions = shapes.grid[0] * shapes.grid[1]
    points = shapes.images * positions

    poses_in_windows = windows(poses.flatten(1, 2), window).view(
        shapes.images, shapes.children, rows, columns, window.places, positions
    )
    poses_bcrp = poses_in_windows.permute(4, 1, 3, 2, 0, 5).reshape(shapes.inside, columns, rows * points)
    maps_bjcc = maps.expand(window.places, -1, -1, -1, -1).reshape(shapes.inside, shapes.parents * columns, columns)
    votes = (maps_bjcc @ poses_bcrp).view(shapes.inside, shapes.parents, columns, rows, points)
    if window.coordinates:
        shifts_pcr = votes.new_zeros(window.height, window.width, 1, columns, rows)
        shifts_pcr[:, :, 0, -1, 0] = places(window.height, window, votes)[:, None]
        shifts_pcr[:, :, 0, -1, 1] = places(window.width, window, votes)
        by_child = shifts_pcr.expand(-1, -1, shapes.children, -1, -1)
        votes = votes + by_child.reshape(shapes.inside, 1, columns, rows, 1)

    activations_in_windows = windows(activations, window).view(shapes.images, shapes.children, window.places, positions)
    activations_bp = activations_in_windows.permute(2, 1, 0, 3).reshape(shapes.inside, points)
    return FormedVotes(
        votes,
        activations_bp,
        shapes.images,
        shapes.grid,
        Sharing(shapes) if shapes.everywhere else None,
        spread=shapes.spread,
        log_floor=shapes.log_floor,
    )


def places(count: int, window: Window, like: Tensor) -> Float[Tensor, " count"]:
    """Where so many rows or columns are, side by side, by the window's rule."""
    numbers = torch.arange(count, dtype=like.dtype, device=like.device)
    if window.coordinate_rule == "constant":
        return torch.full_like(numbers, 0.1)
    return (numbers + 1) / (10 * count) if window.coordinate_rule == "tenths" else (numbers + 0.5) / count


def windows(grid: Float[Tensor, "N channels height width"], window: Window) -> Float[Tensor, "N rows P"]:
    """What each parent position sees, as (N, channels · places, P)."""
    if grid.shape[2:] == (window.height, window.width):  # one window, with everything in it
        return grid.flatten(1)[:, :, None]
    return F.unfold(grid, (window.height, window.width), stride=window.stride)


class FormedVotes:
    """Votes in memory, and their moments under given parents."""

    backend = "reference"

    def __init__(
        self,
        votes: Float[Tensor, "B J C R NP"],
        activations: Float[Tensor, "B NP"],
        images: int,
        grid: tuple[int, int],
        sharing: Sharing | None = None,
        *,
        spread: bool = False,
        log_floor: float = -math.inf,
    ) -> None:
        self.votes, self.inside = votes, len(votes)
        self.activations = activations
        self.images = images
        self.grid = grid
        self.sharing, self.spread, self.log_floor = sharing, spread, log_floor

    def uniform(self) -> Moments:
        weights = self.activations[:, None] * self.uniform_assignments()  # ρ_ij
        with torch.no_grad():
            mass = weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny)
            centre = (weights[:, :, None, None] * self.votes).sum(0) / mass[:, None, None]
        deviations = self.votes - centre  # d_ijh = v_ijh − m_jh
        return self.sums(centre, weights, deviations, deviations.square())

    def under(self, parents: Parents) -> Moments:
        centre = self.lay_out(parents.centre)
        deviations = self.votes - centre
        squares = deviations.square()
        weights = self.activations[:, None] * self.assignments(squares, parents)
        return self.sums(centre, weights, deviations, squares)

    def sums(self, centre: Tensor, weights: Tensor, deviations: Tensor, squares: Tensor) -> Moments:
        return Moments(
            centre=self.put_back(centre),
            mass=self.put_back(weights.sum(0)),
            first=self.put_back((weights[:, :, None, None] * deviations).sum(0)),
            second=self.put_back((weights[:, :, None, None] * squares).sum(0)),
        )

    def assignments(self, squares: Float[Tensor, "B J C R NP"], parents: Parents) -> Float[Tensor, "B J NP"]:
        """r_ij: which share of child i each parent explains; the shares of a child sum to 1, or to less where its
        logits are below the floor."""
        logits = self.lay_out(parents.logit) - 0.5 * (self.lay_out(parents.precision) * squares).sum((2, 3))
        if self.sharing is None and self.log_floor == -math.inf:
            return logits.softmax(1)
        log_total = logits.logsumexp(1)
        if self.sharing is not None:
            log_total = self.sharing.log_total(log_total)
        return (logits - log_total.clamp(min=self.log_floor)[:, None]).exp()

    def uniform_assignments(self) -> Float[Tensor, "B J NP"]:
        """r_ij = 1 / (number of parents that compete for child i from the start)."""
        inside, parents, *_, points = self.votes.shape
        if self.sharing is None or not self.spread:
            return self.activations.new_full((1, parents, 1), 1 / parents).expand(inside, -1, points)
        return (1 / (parents * self.sharing.windows_of(self.activations)))[:, None].expand(-1, parents, -1)

    def votes_by_image(self) -> Float[Tensor, "N B J D H W"]:
        votes = self.votes.unflatten(-1, (self.images, *self.grid))
        return votes.permute(4, 0, 1, 3, 2, 5, 6).flatten(3, 4)

    def assignments_by_image(self, parents: Parents | None) -> Float[Tensor, "N B J H W"]:
        if parents is None:
            shares = self.uniform_assignments()
        else:
            shares = self.assignments((self.votes - self.lay_out(parents.centre)).square(), parents)
        return shares.unflatten(-1, (self.images, *self.grid)).movedim(2, 0)

    def lay_out(self, parents: Tensor) -> Tensor:
        """(N, J, H, W) → (J, N·P), or (N, J, D, H, W) → (J, C, R, N·P)."""
        if parents.ndim == 4:
            return parents.flatten(2).transpose(0, 1).flatten(1)
        columns, rows = self.votes.shape[2:4]
        split = parents.flatten(3).unflatten(2, (rows, columns))
        return split.permute(1, 3, 2, 0, 4).flatten(3)

    def put_back(self, sums: Tensor) -> Tensor:
        """The inverse of `lay_out`."""
        sums = sums.unflatten(-1, (self.images, *self.grid))
        if sums.ndim == 4:
            return sums.transpose(0, 1)
        return sums.permute(3, 0, 2, 1, 4, 5).flatten(2, 3)


class Sharing:
    """Children seen from several positions, for competition over all of them."""

    def __init__(self, shapes: Shapes) -> None:
        self.shapes, self.window = shapes, shapes.window
        self.positions = shapes.grid[0] * shapes.grid[1]

    def log_total(self, logits: Float[Tensor, "B NP"]) -> Float[Tensor, "B NP"]:
        """For each child in each window, the log of the sum of exp(logit) over all windows that hold it."""
        with torch.no_grad():
            child = self.child_numbers(logits.device)
            count = self.shapes.images * self.shapes.children * self.shapes.height * self.shapes.width
            largest = logits.new_full((count,), torch.finfo(logits.dtype).min)
            largest = largest.scatter_reduce(0, child.flatten(), logits.flatten(), "amax")[child]
        total = self.spread(self.gather((logits - largest).exp()))
        return largest + total.log()

    def windows_of(self, like: Float[Tensor, "B NP"]) -> Float[Tensor, "B NP"]:
        """For each child in each window, how many windows hold it."""
        return self.spread(self.gather(torch.ones_like(like)))

    def gather(self, values: Float[Tensor, "B NP"]) -> Float[Tensor, "N I height width"]:
        """Sums, for each child, what it has in all windows that hold it."""
        shapes = self.shapes
        laid = values.view(self.window.places, shapes.children, shapes.images, self.positions).permute(2, 1, 0, 3)
        kernel = (self.window.height, self.window.width)
        return F.fold(laid.flatten(1, 2), (shapes.height, shapes.width), kernel, stride=self.window.stride)

    def spread(self, totals: Float[Tensor, "N I height width"]) -> Float[Tensor, "B NP"]:
        """Gives each window the numbers of the children it holds."""
        shapes = self.shapes
        laid = windows(totals, self.window).view(shapes.images, shapes.children, self.window.places, self.positions)
        return laid.permute(2, 1, 0, 3).reshape(shapes.inside, shapes.images * self.positions)

    def child_numbers(self, device: torch.device) -> Tensor:
        """(B, N·P) int64: the same number wherever the same child stands."""

        def count(number: int, place: int) -> Tensor:
            """0, 1, … along one dimension of (window row, window column, child type, image, grid row, grid column)."""
            return torch.arange(number, device=device).view(*(number if k == place else 1 for k in range(6)))

        shapes, window = self.shapes, self.window
        row = count(window.height, 0) + window.stride * count(shapes.grid[0], 4)
        column = count(window.width, 1) + window.stride * count(shapes.grid[1], 5)
        plane = count(shapes.images, 3) * shapes.children + count(shapes.children, 2)
        return ((plane * shapes.height + row) * shapes.width + column).reshape(shapes.inside, -1)


def bind_in_pieces(poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes, iterations: int = 1) -> InPieces:
    """The same without all votes in memory at once."""
    return InPieces(poses, activations, maps, shapes)


class InPieces:
    """The reference a few images at a time; their votes are formed for each call, and again for its backward."""

    backend = "reference"

    def __init__(self, poses: Tensor, activations: Tensor, maps: Tensor, shapes: Shapes) -> None:
        self.children, self.maps, self.shapes = (poses, activations), maps, shapes
        self.inside = shapes.inside

    def uniform(self) -> Moments:
        return self.piece_by_piece(None)

    def under(self, parents: Parents) -> Moments:
        return self.piece_by_piece(parents)

    def piece_by_piece(self, parents: Parents | None) -> Moments:
        images = self.shapes.images
        numbers = self.shapes.votes * self.shapes.dims
        some = max(1, images * PIECE // max(1, numbers))
        found = []
        for first in range(0, max(1, images), some):
            given = [values[first : first + some] for values in (*self.children, *(parents or ()))]
            found.append(checkpoint(self.piece, self.maps, *given, use_reentrant=False, preserve_rng_state=False))
        return Moments(*map(torch.cat, zip(*found, strict=True)))

    def piece(self, maps: Tensor, poses: Tensor, activations: Tensor, *parents: Tensor) -> Moments:
        shapes = Shapes.of(poses, maps, self.shapes.window, self.shapes.competition, self.shapes.log_floor)
        votes = bind(poses, activations, maps, shapes)
        return votes.under(Parents(*parents)) if parents else votes.uniform()
