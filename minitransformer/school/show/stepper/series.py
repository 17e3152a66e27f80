"""The layout of a graph as in circuit diagrams: things in a row, and branches side by side within the row.

    x reads nothing; q, k, v read x; attention reads q, k, v; + reads x and attention

    [x, {[{[q], [k], [v]}, attention], around}, +]          in [ ] a row, in { } branches

Each part of a row reads what the part before it gives. A value that goes around the branches, as in a residual
connection, is one more branch. No edge of the graph is lost, and none is added. A part of a row is

    a node
    {"branches": [row, ...]}     rows side by side; around: where a value goes around them all, the nodes from and to
                                 which it goes
    {"ranks": [[node, ...], ...]}    nodes that are neither in a row nor side by side, as where two of them read two
                                 others crosswise: by the length of the longest path that leads to them
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeVar

Node = TypeVar("Node", bound=Hashable)


def row_of(nodes: Iterable[Node], edges: Iterable[tuple[Node, Node]]) -> list[Any]:
    """The layout. nodes: each after those that it reads. The work is linear in the edges, times the depth of the
    nesting.
    """
    reads: dict[Node, list[Node]] = {node: [] for node in nodes}
    for before, after in edges:
        reads[after].append(before)
    return _parallel(list(reads), reads, None, None)


def _parallel(nodes: Sequence[Node], reads: dict[Node, list[Node]], start: Node | None, end: Node | None) -> list[Any]:
    """Nodes between two others, of which each part that is connected within becomes a branch."""
    if not nodes:
        return []
    parts = _connected(nodes, reads)
    passes = start is not None and end is not None and start in reads[end]
    if len(parts) + passes == 1:
        return _series(nodes, reads, start, end)
    rows = [_series(part, reads, start, end) for part in parts]
    return [{"branches": rows} | ({"around": (start, end)} if passes else {})]


def _series(nodes: Sequence[Node], reads: dict[Node, list[Node]], start: Node | None, end: Node | None) -> list[Any]:
    """Nodes in a row, cut at those that no edge passes."""
    place = {node: i for i, node in enumerate(nodes)}
    last = [-1] * (len(nodes) + 1)  # where the longest edge leads: from `start` and then from each node
    for node, i in place.items():
        befores = [place[before] for before in reads[node] if before in place]
        if (start is None and not befores) or start in reads[node]:
            last[0] = max(last[0], i)
        for before in befores:
            last[before + 1] = max(last[before + 1], i)
    final = reads[end] if end is not None else ()
    for node, i in place.items():
        if last[i + 1] < 0 or node in final:
            last[i + 1] = len(nodes)
    cuts, furthest = [], -1
    for i in range(len(nodes)):
        furthest = max(furthest, last[i])
        if furthest <= i:
            cuts.append(i)
    if not cuts:
        return [{"ranks": _ranks(nodes, reads)}]
    row: list[Any] = []
    left, rest = start, 0
    for cut in cuts:
        row += _parallel(nodes[rest:cut], reads, left, nodes[cut])
        row.append(nodes[cut])
        left, rest = nodes[cut], cut + 1
    return [*row, *_parallel(nodes[rest:], reads, left, end)]


def _connected(nodes: Sequence[Node], reads: dict[Node, list[Node]]) -> list[list[Node]]:
    """The nodes in groups with an edge between some two of each; groups and nodes keep their order."""
    parent = {node: node for node in nodes}

    def root(node: Node) -> Node:
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for node in nodes:
        for before in reads[node]:
            if before in parent:
                parent[root(node)] = root(before)
    groups: dict[Node, list[Node]] = {}
    for node in nodes:
        groups.setdefault(root(node), []).append(node)
    return list(groups.values())


def _ranks(nodes: Sequence[Node], reads: dict[Node, list[Node]]) -> list[list[Node]]:
    rank: dict[Node, int] = {}
    for node in nodes:
        rank[node] = 1 + max((rank[before] for before in reads[node] if before in rank), default=-1)
    return [[node for node in nodes if rank[node] == r] for r in range(max(rank.values()) + 1)]
