"""`python -m tests.golden.write`: write golden values of raised versions, and the settings hashes, anew."""

from __future__ import annotations

import sys

from tests.golden import hashes, mixers, models, store


def main() -> int:
    """Write all three files and say what was changed; 1 when a changed output has its old version still."""
    refused = []
    for module in (mixers, models):
        old = store.read(module.FILE)
        golden, sentences = store.renewed(module.FILE, module.CASES)
        store.write(module.FILE, golden)
        refused += sentences
        for name in dict.fromkeys([*golden, *old]):
            if golden.get(name) != old.get(name):
                print(f"{module.FILE.name}: {name}: {'written' if name in golden else 'taken out'}")
    found = {hashes.name_of(overlays): hashes.hashes_of(overlays) for overlays in hashes.CONFIGURATIONS}
    for name, stored in hashes.read().items():
        for sentence in hashes.faults(name, stored, found.get(name, {})):
            print(f"{hashes.FILE.name}: {sentence.split(': ')[0]}: {sentence.split(': ')[1]}: written")
    hashes.write(found)
    for sentence in refused:
        print(f"geomix: {sentence}", file=sys.stderr)
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
