"""The results page: a folder that a browser opens from disk, to see, hear and compare what each arm does.

`build_page` makes it from what lies in a run folder. The page is plain files: no server, nothing fetched. docs/results_page.md
tells what it shows.
"""

from geomix.report.page.build import build_page, pages_in

__all__ = ["build_page", "pages_in"]
