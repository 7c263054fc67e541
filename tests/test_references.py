"""Papers are cited by key: each key has its reference, each reference is cited, and nobody is "the article"."""

import re

from tests.conftest import ROOT

KEY = re.compile(r"\[((?:[A-Z][A-Za-z]+\d{4})|ESPnet)\]")
LISTED = re.findall(r"^\| \[(\w+)\] \| .+ \|$", (ROOT / "docs/references.md").read_text(encoding="utf-8"), re.MULTILINE)
PAGES = ["README.md", *(f"docs/{name}.md" for name in ("algebra", "cluster", "math", "reruns"))]
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [*(ROOT / "src").rglob("*.py"), *map(ROOT.joinpath, PAGES)]
}


def test_keys_and_references():
    assert LISTED == sorted(LISTED) and len(set(LISTED)) == len(LISTED)
    cited = {key for text in TEXTS.values() for key in KEY.findall(text)}
    assert cited == set(LISTED)


def test_a_paper_is_named():
    """Rooms that say which paper they mean; README explains what older results mean by "the article"."""
    rooms = ("algebra", "kernels", "mixers", "speech", "language", "training", "benchmarks", "espnet_track")
    for name, text in TEXTS.items():
        if name.startswith(tuple(f"src/geomix/{room}/" for room in rooms)) or name.startswith("docs/"):
            assert not re.search(r"\b[Tt]he (k-blade )?article\b|\b[Tt]he paper\b", text), name
