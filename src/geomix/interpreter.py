"""Where the environment may lie: Snakemake starts a script with the path of its Python unquoted, in a shell.

python -m geomix.interpreter .venv/bin/python      a sentence and status 1 for a path that a shell would not take as one word
"""

from __future__ import annotations

import os
import re
import sys

from geomix.errors import UserError, exit_with_sentence

_NOT_ONE_WORD = re.compile(r"""[\s'"\\$`&|;<>()*?\[]""")


def check_interpreter(path: str | os.PathLike = sys.executable) -> None:
    """Refuse a Python whose absolute path holds a space, or another letter that ends or changes a word of the shell."""
    path = os.path.abspath(path)
    if found := _NOT_ONE_WORD.search(path):
        what = "a space" if found[0] == " " else repr(found[0])
        raise UserError(
            f"{path}: the path of the environment holds {what}, and Snakemake starts each script without quoting it: move the "
            "project to a folder without one, or make the environment elsewhere"
        )


if __name__ == "__main__":
    with exit_with_sentence():
        check_interpreter(*sys.argv[1:2])
