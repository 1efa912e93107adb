"""The specification of `soft_moments`: every vote formed once, every sum written out.

Letters of shapes: N images, P parent positions, B children in a window (places × child types), J parent types,
R × C a pose's rows and columns (D = R·C numbers). Votes lie as (B, J, C, R, N·P): sums over children, over pose
dimensions and the softmax over parents all leave the long last dimension contiguous.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from quatcaps.routing.soft_moments.moments import Moments, Parents
from quatcaps.routing.window import Window


def bind(
    poses: Float[Tensor, "N I D height width"],
    activations: Float[Tensor, "N I height width"],
    maps: Float[Tensor, "offsets I J C C"],
    window: Window,
    *,
    competition: str,
) -> FormedVotes:
    """Forms all votes v_ij = A_ij u_i of a layer, with the window's coordinates added where it has them."""
    images, children, dims, height, width = poses.shape
    parents, columns = maps.shape[2], maps.shape[-1]
    rows, grid = dims // columns, window.positions(height, width)
    positions, inside = grid[0] * grid[1], window.places * children
    points = images * positions

    poses_in_windows = windows(poses.flatten(1, 2), window).view(
        images, children, rows, columns, window.places, positions
    )
    poses_bcrp = poses_in_windows.permute(4, 1, 3, 2, 0, 5).reshape(inside, columns, rows * points)
    maps_bjcc = maps.expand(window.places, -1, -1, -1, -1).reshape(inside, parents * columns, columns)
    votes = (maps_bjcc @ poses_bcrp).view(inside, parents, columns, rows, points)
    if window.coordinates:
        shifts_pcr = votes.new_zeros(window.height, window.width, 1, columns, rows)
        shifts_pcr[:, :, 0, -1, 0] = middles(window.height, votes)[:, None]
        shifts_pcr[:, :, 0, -1, 1] = middles(window.width, votes)
        votes = votes + shifts_pcr.expand(-1, -1, children, -1, -1).reshape(inside, 1, columns, rows, 1)

    activations_in_windows = windows(activations, window).view(images, children, window.places, positions)
    activations_bp = activations_in_windows.permute(2, 1, 0, 3).reshape(inside, points)
    sharing = Sharing(window, images, children, height, width) if competition == "all" else None
    return FormedVotes(votes, activations_bp, images, grid, sharing)


def middles(count: int, like: Tensor) -> Float[Tensor, " count"]:
    """The middles of so many places side by side, from 0 to 1."""
    return (torch.arange(count, dtype=like.dtype, device=like.device) + 0.5) / count


def windows(grid: Float[Tensor, "N channels height width"], window: Window) -> Float[Tensor, "N rows P"]:
    """What each parent position sees, as (N, channels · places, P)."""
    if grid.shape[2:] == (window.height, window.width):  # one window, with everything in it
        return grid.flatten(1)[:, :, None]
    return F.unfold(grid, (window.height, window.width), stride=window.stride)


class FormedVotes:
    """Votes in memory, and their moments under given parents."""

    def __init__(
        self,
        votes: Float[Tensor, "B J C R NP"],
        activations: Float[Tensor, "B NP"],
        images: int,
        grid: tuple[int, int],
        sharing: Sharing | None = None,
    ) -> None:
        self.votes, self.inside = votes, len(votes)
        self.activations = activations
        self.images = images
        self.grid = grid
        self.sharing = sharing

    def __call__(self, parents: Parents | None) -> Moments:
        if parents is None:
            weights = self.activations[:, None] * self.uniform_assignments()  # ρ_ij
            with torch.no_grad():
                mass = weights.sum(0).clamp(min=torch.finfo(weights.dtype).tiny)
                centre = (weights[:, :, None, None] * self.votes).sum(0) / mass[:, None, None]
            deviations = self.votes - centre  # d_ijh = v_ijh − m_jh
            squares = deviations.square()
        else:
            centre, precision = self.lay_out(parents.centre), self.lay_out(parents.precision)
            deviations = self.votes - centre
            squares = deviations.square()
            logits = self.lay_out(parents.logit) - 0.5 * (precision * squares).sum((2, 3))
            weights = self.activations[:, None] * self.assignments(logits)
        return Moments(
            centre=self.put_back(centre),
            mass=self.put_back(weights.sum(0)),
            first=self.put_back((weights[:, :, None, None] * deviations).sum(0)),
            second=self.put_back((weights[:, :, None, None] * squares).sum(0)),
        )

    def assignments(self, logits: Float[Tensor, "B J NP"]) -> Float[Tensor, "B J NP"]:
        """r_ij: which share of child i each parent explains; the shares of a child sum to 1."""
        if self.sharing is None:
            return logits.softmax(1)
        return (logits - self.sharing.log_total(logits.logsumexp(1))[:, None]).exp()

    def uniform_assignments(self) -> Float[Tensor, "B J NP"]:
        """r_ij = 1 / (number of parents that compete for child i)."""
        parents = self.votes.shape[1]
        if self.sharing is None:
            return self.activations.new_full((1, parents, 1), 1 / parents).expand(
                len(self.votes), -1, self.votes.shape[-1]
            )
        return self.assignments(
            self.activations.new_zeros(1, parents, 1).expand(len(self.votes), -1, self.votes.shape[-1])
        )

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

    def __init__(self, window: Window, images: int, children: int, height: int, width: int) -> None:
        self.window, self.images, self.children, self.size = window, images, children, (height, width)
        rows, columns = window.positions(height, width)
        self.positions = rows * columns

    @property
    def count(self) -> int:
        """All children of all images."""
        return self.images * self.children * self.size[0] * self.size[1]

    def log_total(self, logits: Float[Tensor, "B NP"]) -> Float[Tensor, "B NP"]:
        """For each child in each window, the log of the sum of exp(logit) over all windows that hold it."""
        with torch.no_grad():
            child = self.child_numbers(logits.device)
            lowest = torch.finfo(logits.dtype).min
            largest = logits.new_full((self.count,), lowest)
            largest = largest.scatter_reduce(0, child.flatten(), logits.flatten(), "amax")[child]
        total = self.spread(self.gather((logits - largest).exp()))
        return largest + total.log()

    def gather(self, values: Float[Tensor, "B NP"]) -> Float[Tensor, "N I height width"]:
        """Sums, for each child, what it has in all windows that hold it."""
        laid = values.view(self.window.places, self.children, self.images, self.positions).permute(2, 1, 0, 3)
        kernel = (self.window.height, self.window.width)
        return F.fold(laid.flatten(1, 2), self.size, kernel, stride=self.window.stride)

    def spread(self, totals: Float[Tensor, "N I height width"]) -> Float[Tensor, "B NP"]:
        """Gives each window the numbers of the children it holds."""
        laid = windows(totals, self.window).view(self.images, self.children, self.window.places, self.positions)
        return laid.permute(2, 1, 0, 3).reshape(self.window.places * self.children, self.images * self.positions)

    def child_numbers(self, device: torch.device) -> Tensor:
        """(B, N·P) int64: the same number wherever the same child stands. Exact in float64 up to 2⁵³ children."""
        numbers = torch.arange(self.count, dtype=torch.float64, device=device)
        return self.spread(numbers.view(self.images, self.children, *self.size)).long()
