"""A graph network that learns communities from two labelled nodes, and a drawing of its answer.

    python examples/graph_network.py [communities.svg]

A layer multiplies the features of all nodes by the normalised adjacency matrix, so that each node sees its neighbours
(Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, 2017, eq. 2).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx import sparse

NODES = 60
STEPS = 100
_COLOURS = ("#2a78d6", "#e3742f")
_SCALE, _MARGIN = 60, 20


def graph(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the places of the nodes `[N, 2]`, their communities `[N]`, and the edges `[E, 2]`, which join near nodes."""
    community = np.arange(NODES) % 2
    angle = rng.uniform(0, np.pi, NODES)
    moon = np.stack([np.cos(angle), np.sin(angle)], 1) * np.where(community, -1, 1)[:, None]
    places = moon + np.where(community[:, None], [1.0, 0.35], [0.0, 0.0]) + rng.normal(scale=0.07, size=(NODES, 2))
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    nearest = np.argsort(distance, axis=1)[:, 1:5]
    edges = np.stack([np.repeat(np.arange(NODES), 4), nearest.reshape(-1)], 1)
    return places, community, np.unique(np.sort(edges, axis=1), axis=0)


def normalised(edges: np.ndarray) -> Any:
    """Return D^-1/2·(A + 1)·D^-1/2, for the adjacency matrix A and the degrees D of A + 1."""
    row, col = np.concatenate([edges, edges[:, ::-1]]).T
    joined = sparse.coo_array((np.ones(row.size, np.float32), (row, col)), shape=(NODES, NODES))
    joined = joined + sparse.eye_array(NODES)
    scale = 1 / np.sqrt(joined.sum(axis=1))
    return joined.multiply(scale).multiply(scale[:, None])


def logits(params: dict[str, Any], adjacency: Any) -> Any:
    """Return the score of the second community for each node."""
    hidden = rlx.ops.tanh(adjacency @ params["first"])  # the feature of a node is its number
    for _ in range(6):
        hidden = adjacency @ hidden
    return (hidden @ params["second"])[:, 0]


@rlx.jit
def loss(params: dict[str, Any], adjacency: Any, labelled: Any, labels: Any) -> Any:
    """Return the mean logistic loss of the labelled nodes, with a small penalty on the weights."""
    scores = rlx.ops.gather(logits(params, adjacency), labelled)
    size = (params["first"] ** 2).mean() + (params["second"] ** 2).mean()
    return rlx.ops.softplus(-scores * labels).mean() + 1e-3 * size


def trained(adjacency: Any, community: np.ndarray, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray]:
    """Return the weights after gradient descent with the labels of one node of each community, and these nodes."""
    params = {
        "first": rng.normal(scale=0.3, size=(NODES, 16)).astype(np.float32),
        "second": rng.normal(scale=0.3, size=(16, 1)).astype(np.float32),
    }
    labelled = np.array([10, 11], np.int32)
    labels = np.where(community[labelled], 1, -1).astype(np.float32)
    gradient = loss.grad()
    for _ in range(STEPS):
        slopes = gradient(params, adjacency, labelled, labels)
        params = {name: params[name] - 2.0 * slopes[name] for name in params}
    return params, labelled


def drawing(places: np.ndarray, edges: np.ndarray, scores: np.ndarray, labelled: np.ndarray) -> str:
    """Return an SVG of the graph: the colour of a node is its community, and labelled nodes have a ring."""
    low = places.min(0)
    spots = (places - low) * _SCALE * 2 + _MARGIN
    width, height = spots.max(0) + _MARGIN
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">']
    for a, b in edges:
        (x1, y1), (x2, y2) = spots[a], spots[b]
        lines.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#8884"/>')
    for i, (x, y) in enumerate(spots):
        ring = ' stroke="#888" stroke-width="4"' if i in labelled else ""
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{_COLOURS[int(scores[i] > 0)]}"{ring}/>')
    return "\n".join([*lines, "</svg>", ""])


def main(path: str | None = None) -> float:
    """Train, draw, and return the share of nodes whose community is right."""
    rng = np.random.default_rng(4)
    places, community, edges = graph(rng)
    adjacency = normalised(edges)
    params, labelled = trained(adjacency, community, rng)
    scores = rlx.jit(logits)(params, adjacency)
    accuracy = float(((scores > 0) == community).mean())
    print(f"{len(edges)} edges, 2 labels: {accuracy:.0%} of {NODES} nodes are in the right community")
    if path is not None:
        Path(path).write_text(drawing(places, edges, scores, labelled), encoding="utf-8")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:2])
