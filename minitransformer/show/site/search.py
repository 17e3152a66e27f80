"""The page of the search. The index that it reads is written by frame.py."""

from __future__ import annotations

from .frame import Site


def write_search(site: Site) -> None:
    """Write the page."""
    body = """<h1>Search</h1>
<p><input id="question" type="search" aria-label="Words to find"> <span id="count" role="status"></span></p>
<ul id="results"></ul>"""
    site.page("search.html", "Search", body, ("index.js", "search.js"))
