"""Stands for every script of the workflow in the tests of what runs again: it writes what its rule declares, and a line in ran.txt.

A training keeps its promise about states: what was trained is noted by the hash of its settings and of its data's content,
and a second request for the same is `restored`. The gate passes where the file `passes` names the arm that is measured.
"""

import hashlib
import json
from pathlib import Path

if __name__ == "__main__":
    rule, values = snakemake.rule, dict(snakemake.wildcards.items())
    text = rule
    if rule.startswith("train"):
        data = sorted(str(path) for path in snakemake.input if "/seed" not in path and not path.endswith(".passed"))
        content = [Path(path).read_text() for path in data if Path(path).is_file()]
        request = json.dumps([snakemake.params.settings, data, content])
        state = Path("state") / hashlib.sha256(request.encode()).hexdigest()[:12]
        how = "restored" if state.exists() else "trained"
        state.mkdir(parents=True, exist_ok=True)
        rule = f"{rule}:{how}"
    if rule in ("measure_anchor", "measure_parity"):
        gate, passing = snakemake.params.gate, Path("passes").read_text().split()
        arms = [gate["arm"], *([gate["fallback"]["arm"]] if gate["fallback"] else [])]
        anchor = next((arm for arm in arms if arm in passing), None)
        text = json.dumps({"passed": gate["arm"] in passing, "anchor": anchor, "mode": gate["mode"]})
    with open("ran.txt", "a") as file:
        file.write(
            f"{rule} {'/'.join(values[key] for key in ('track', 'arm', 'seed', 'split', 'set') if key in values)}\n"
        )
    if rule == "parity_gate":
        parity = json.loads(Path(snakemake.input[0]).read_text())
        if not parity["anchor"] and parity["mode"] != "record":
            raise SystemExit("geomix: missed")
    for output in map(Path, snakemake.output):
        if rule in ("espnet_audio", "page") or (rule in ("generate_corpus", "prepare_split") and not output.suffix):
            output.mkdir(parents=True, exist_ok=True)
        else:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text)
