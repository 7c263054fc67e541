"""Pages from the templates of this package: all their prose stands in `templates/`, values come from here."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("geomix.report"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def render(template: str, **values: Any) -> str:
    """The page that a template of `templates/` makes of `values`; a value that it lacks is an error of ours.

    Parts are kept apart by one empty line, however many a part that is not there leaves.
    """
    text = _environment().get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
