# The speed probe ([Tested2026], e00): each piece in a process of its own, one at a time (a piece takes all cores), then the table.

from geomix.benchmarks.speed.pieces import PIECES


localrules:
    speed,
    speed_report,


rule speed_piece:
    output:
        "results/speed/pieces/{piece}.json",
    log:
        "logs/speed/{piece}.log",
    wildcard_constraints:
        piece="|".join(re.escape(piece) for piece in PIECES),
    threads: os.cpu_count()
    params:
        device=config["training"]["device"],
    script:
        "../workflow_scripts/speed_piece.py"


rule speed_report:
    input:
        expand("results/speed/pieces/{piece}.json", piece=PIECES),
    output:
        csv="results/speed/speed.csv",
        markdown="results/speed/speed.md",
        record="results/speed/record.json",
        plots=expand("results/speed/{name}.{form}", name=["block", "encoder"], form=["svg", "png"]),
    log:
        "logs/speed/report.log",
    script:
        "../workflow_scripts/speed_report.py"


rule speed:
    input:
        rules.speed_report.output,
