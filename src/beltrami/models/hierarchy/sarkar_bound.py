r"""How long the edges of a tree must be so that hyperbolic distances follow the tree's.

All edges have length τ and any two edges at a node enclose at least the angle α; curvature −1.

*Lemma 1.* In a triangle with sides D and τ that enclose γ, the third side D' exceeds D by more than
log(cosh τ − sinh τ·cos γ). Proof: let the corner at the far end of D move away from the angle along
its side; by the triangle inequality D' − D does not increase. By the law of cosines
cosh D' = cosh D·cosh τ − sinh D·sinh τ·cos γ, the stated number is its limit (a Busemann function).

*Lemma 2.* Walk along a path of the tree that starts at u, and let β be the angle at the current
node between the last edge, looking back, and the geodesic to u. One edge further, β is less than in
the triangle whose corner u has gone to infinity, where tan(β/2)·tan(γ/2) = e^{−τ}, and there
γ ≥ α − β_before. At the start β = 0. So if β* ≤ α/2 satisfies tan(β*/2)·tan((α−β*)/2) = e^{−τ},
then β never exceeds it. As tan A·tan B = [cos(A−B) − cos(A+B)]/[cos(A−B) + cos(A+B)], the least
solution obeys

    (α − β*)/2 = [α/2 + acos(cos(α/2)·coth(τ/2))]/2 =: ω,      if cos(α/2)·coth(τ/2) ≤ 1.

(Beyond that condition a path that always turns by α closes up, and no bound holds.)

*Bound.* So every edge of a path but the first adds at least τ − δ with

    δ = τ − log(cosh τ − sinh τ·cos 2ω) = −log(sin²ω + e^{−2τ}·cos²ω),

and nodes that are j edges apart have a distance of j·τ − (j−1)·δ ≤ d ≤ j·τ. In a tree of diameter h
the worst ratio is 1/(1 − δ·(h−1)/(h·τ)), which is at most 1 + ε if τ ≥ δ·(1 + 1/ε)·(h−1)/h: about
2·(1 + 1/ε)·log(k/π) in the plane with k neighbours. In the ideal triangle of lemma 2 the law of
sines reads sin 2ω = e^{τ−δ}·sin β*, and β* ≤ α − β* = 2ω, so τ − δ is never negative, and every
further edge adds to the distance: the neighbours of a node are nearer to it than all other nodes.
The bound is sharp: a long path that always turns by α grows by τ − δ an edge.
"""

from __future__ import annotations

import math

_BISECTIONS = 200  # ends at neighbouring float64 numbers long before


def deficit(angle: float, edge: float) -> float:
    """δ: how much an edge of a path may add less than τ; infinite where there is no bound.

    Args:
        angle: α in (0, π], the least angle between two edges at a node.
        edge: τ > 0, in units of the curvature radius.
    """
    cosine = math.cos(angle / 2) / math.tanh(edge / 2)
    if cosine > 1:
        return math.inf
    omega = (angle / 2 + math.acos(cosine)) / 2
    return -math.log1p(math.cos(omega) ** 2 * math.expm1(-2 * edge))


def distortion_bound(angle: float, edge: float, diameter: int) -> float:
    """The worst ratio of tree distance (times τ) to hyperbolic distance, by the module's theorem.

    Args:
        angle: α in (0, π].
        edge: τ > 0, in units of the curvature radius.
        diameter: edges of the longest path.

    Returns:
        At least 1; infinite where the theorem says nothing.
    """
    if diameter < 2:
        return 1.0
    lost = deficit(angle, edge) * (diameter - 1) / diameter
    return edge / (edge - lost) if lost < edge else math.inf


def edge_length_for(angle: float, max_distortion: float, diameter: int) -> float:
    """The least τ for which no distance is short by more than a factor 1 + max_distortion.

    In units of the curvature radius, and no less than the condition of the bound. A tree without a
    branch is a geodesic at any edge length, and gets 1.
    """
    if diameter < 2 or angle >= math.pi:
        return 1.0
    share = (1 + 1 / max_distortion) * (diameter - 1) / diameter

    def long_enough(edge: float) -> bool:
        return edge >= share * deficit(angle, edge)

    low, high = 0.0, 1.0
    while not long_enough(high):
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if long_enough(middle) else (middle, high)
    return high
