"""The benchmark of the statistics runs, small, and writes what it printed."""

from geomix.benchmarks.statistics import Options, run
from geomix.files import read_json


def test_benchmark_writes_its_figures(tmp_path, capsys):
    run(Options(out=tmp_path, utterances=200, resamples=500, repeats=1))
    figures = read_json(tmp_path / "statistics.json")
    assert figures["scorer"]["utterances"] == 200 and figures["bootstrap"]["resamples"] == 500
    assert all(value > 0 for name in ("scorer", "bootstrap") for value in figures[name].values())
    assert "words_seconds" in capsys.readouterr().out
