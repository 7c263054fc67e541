"""The page in a real browser, opened from disk: what a person does with it."""

import csv
import json
import time
from urllib.parse import urlsplit

import numpy as np
import pytest
from scipy import stats

from geomix.report.page import build_page
from geomix.speech.manifest import read_manifest
from geomix.speech.scoring import read_score
from tests.conftest import ROOT
from tests.page.conftest import HTML, RECORDED, address

# what every test waits for: the rows of the table
ROWS = "#table .tabulator-row"


def open_page(browser, index, tab="", width=1280):
    """Open a page anew, `width` pixels wide."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(address(index, tab))
    wait(browser, "return document.documentElement.dataset.ready === 'yes'")
    if tab.startswith("utterances"):
        wait(browser, f"return document.querySelectorAll('{ROWS}').length > 0")


def wait(browser, script, seconds=10):
    """What a script gives, once it gives something."""
    until = time.monotonic() + seconds
    while not (found := browser.execute_script(script)):
        assert time.monotonic() < until, f"in vain: {script}\n{browser.get_log('browser')}"
        time.sleep(0.05)
    return found


def set_value(browser, selector, value, event="change"):
    browser.execute_script(
        "const box = document.querySelector(arguments[0]); box.value = arguments[1];"
        "box.dispatchEvent(new Event(arguments[2], {bubbles: true}));",
        selector, value, event,
    )  # fmt: skip


def shown(browser, rows=ROWS):
    """The cells of the rows that are drawn, by the names of their columns."""
    return browser.execute_script(
        f"return [...document.querySelectorAll('{rows}')].map(row => Object.fromEntries([...row.querySelectorAll("
        "'.tabulator-cell')].map(cell => [cell.getAttribute('tabulator-field'), cell.textContent])))"
    )


def references_of_test(folder):
    """(id, speaker, words) of the set test, as its manifest has them."""
    utterances = read_manifest(folder.parents[1] / "data/words/test/manifest/test.tsv")
    return [(u.id, u.speaker, u.text.split()) for u in utterances]


def counted(browser):
    return int(
        browser.execute_script("return document.getElementById('shown').textContent").split()[0].replace(",", "")
    )


def test_opens_from_disk_without_an_error_and_without_the_network(browser, page):
    open_page(browser, page)
    for tab in ("compare", "utterances", "mixers", "utterances"):
        browser.execute_script(f"document.getElementById('tab-{tab}').click()")
        wait(browser, f"return !document.getElementById('panel-{tab}').hidden")
    wait(browser, f"return document.querySelectorAll('{ROWS}').length > 0")
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    asked = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in asked if m["method"] == "Network.requestWillBeSent"]
    assert any(url.endswith("/data.js") for url in urls)
    assert {urlsplit(url).scheme for url in urls} <= {"file", "data"}


def test_numbers_are_those_of_tables_csv(browser, page, made_up_run):
    with open(made_up_run / "tables.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    open_page(browser, page)
    table = browser.execute_script(
        "return [...[...document.querySelectorAll('#panel-overview table')].find(t => t.tHead.textContent.includes('WER %')).tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent))"
    )
    heads = ["dev", "test"]
    for row in rows:
        line = next(cells for cells in table if cells[:2] == [row["track"], row["arm"]])
        assert line[4 + heads.index(row["set"])] == f"{row['wer']} [{row['wer_low']}, {row['wer_high']}]"
    for row in rows:
        browser.execute_script("document.getElementById('tab-compare').click()")
        set_value(browser, "#panel-compare select[data-side=a]", f"{row['track']}/{row['arm']}")
        cells = browser.execute_script(
            "return [...document.querySelectorAll('#by-set tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        found = next(line for line in cells if line[0] == row["set"])
        assert (found[2], found[3]) == (row["words"], row["wer"])


def test_rows_sort_and_filter(browser, page, made_up_run):
    score = lambda arm, seed, name: read_score(made_up_run / f"own/{arm}/seed{seed}/score/{name}.tsv").utterances
    worse = 0
    for name in ("dev", "test"):
        of = [score(arm, seed, name) for arm in ("grassmann", "attention") for seed in (0, 1)]
        for a0, a1, b0, b1 in zip(*of, strict=True):
            worse += a0.words.errors + a1.words.errors > b0.words.errors + b1.words.errors
    open_page(browser, page, "utterances")
    differences = [float(row["d"].replace("+", "")) for row in shown(browser)]
    assert differences == sorted(differences, reverse=True) and differences[0] > 0
    browser.execute_script(
        "document.querySelector('#table .tabulator-col[tabulator-field=d] .tabulator-col-content').click()"
    )
    wait(browser, f"return parseFloat(document.querySelector('{ROWS} [tabulator-field=d]').textContent) < 0")
    assert counted(browser) == 288
    set_value(browser, "#filters [name=relation]", "a>b")
    assert counted(browser) == worse
    set_value(browser, "#filters [name=relation]", "")
    set_value(browser, "#filters [name=speaker]", "s03")
    set_value(browser, "#filters [name=set]", "test")
    assert counted(browser) == 6 and {row["speaker"] for row in shown(browser)} == {"s03"}
    set_value(browser, "#filters [name=word]", "ECHO", "input")
    wait(browser, "return document.getElementById('shown').textContent.includes('word ECHO')")
    said = [words for _, speaker, words in references_of_test(made_up_run) if speaker == "s03"]
    assert counted(browser) == sum("ECHO" in words for words in said)
    browser.execute_script("document.querySelector('#filters button').click()")
    assert counted(browser) == 288


def test_arms_seeds_and_words_are_chosen(browser, page, made_up_run):
    open_page(browser, page, "utterances")
    set_value(browser, "#panel-utterances select[data-side=a]", "own/no_mixer/1")
    set_value(browser, "#panel-utterances select[data-side=b]", "own/symmetric/0")
    wait(browser, "return document.getElementById('shown').textContent.includes('no_mixer, seed 1')")
    scores = {
        (u.id, name): u.words.rate
        for name in ("dev", "test")
        for u in read_score(made_up_run / f"own/no_mixer/seed1/score/{name}.tsv").utterances
    }
    rows = wait(browser, f"return document.querySelectorAll('{ROWS}').length") and shown(browser)
    assert rows and all(float(row["a"]) == pytest.approx(scores[row["id"], row["set"]], abs=0.06) for row in rows)
    # from a word of the side by side view to the utterances that hold it
    browser.execute_script("document.getElementById('tab-compare').click()")
    word = wait(browser, "return document.querySelector('#by-word .tabulator-row .link')?.textContent")
    browser.execute_script("document.querySelector('#by-word .tabulator-row .link').click()")
    wait(browser, "return !document.getElementById('panel-utterances').hidden")
    wait(browser, f"return document.getElementById('shown').textContent.includes({json.dumps('word ' + word)})")
    references = browser.execute_script(
        f"return [...document.querySelectorAll('{ROWS} .reference')].map(r => r.textContent)"
    )
    assert references and all(word in reference for reference in references)


def test_errors_have_a_colour_and_a_mark_each(browser, page):
    open_page(browser, page, "utterances")
    browser.execute_script(f"document.querySelectorAll('{ROWS}')[1].click()")
    looks = {}
    for theme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        looks[theme] = wait(
            browser,
            "return Object.fromEntries([...document.querySelectorAll('#detail .key-of-marks .edit')].map(e => "
            "[e.dataset.kind, [getComputedStyle(e).backgroundColor, getComputedStyle(e, '::after').content]]))",
        )
        assert set(looks[theme]) == {"S", "I", "D"}
        assert len({colour for colour, _ in looks[theme].values()}) == 3
        assert {kind: mark.strip('"') for kind, (_, mark) in looks[theme].items()} == {"S": "S", "I": "I", "D": "D"}
    assert looks["light"] != looks["dark"]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("copied", [False, True])
def test_recordings_play_and_a_missing_one_is_said(browser, page, made_up_run, tmp_path, copied):
    index = build_page(made_up_run, tmp_path / "page", audio=True) if copied else page
    assert len(list(index.parent.glob("audio/test/*.mp3"))) == (RECORDED if copied else 0)
    open_page(browser, index, "utterances")
    browser.execute_script("page.filter({set: 'test', search: 's00-1'})")
    wait(browser, f"return document.querySelectorAll('{ROWS}').length === 1")
    browser.execute_script(f"document.querySelector('{ROWS}').click()")
    wait(browser, "return document.querySelector('#detail audio')?.duration > 0.4")
    browser.execute_script("document.querySelector('#table').dispatchEvent(new KeyboardEvent('keydown', {key: ' '}))")
    wait(browser, "return document.querySelector('#detail audio').currentTime > 0")
    if copied:
        assert wait(browser, "return document.querySelector('#detail img').naturalHeight") == 128
    browser.execute_script("page.filter({set: 'test', search: 's20-1'})")
    wait(browser, f"return document.querySelector('{ROWS} [tabulator-field=id]').textContent === 's20-1'")
    browser.execute_script(f"document.querySelector('{ROWS}').click()")
    said = wait(browser, "return document.querySelector('#detail .missing')?.textContent")
    assert ("was not there when the page was made" if copied else "s20-1.wav") in said


def test_a_transcript_that_is_html_is_shown_and_not_run(browser, page):
    open_page(browser, page, "utterances")
    set_value(browser, "#filters [name=word]", HTML[0], "input")
    wait(browser, "return document.getElementById('shown').textContent.includes('word <script>')")
    browser.execute_script(f"document.querySelector('{ROWS}').click()")
    assert HTML[0] in wait(browser, "return document.querySelector('#detail .words')?.textContent")
    browser.execute_script("document.getElementById('tab-compare').click()")
    wait(browser, "return document.querySelectorAll('#confusions .tabulator-row').length")
    assert browser.execute_script(
        "return [window.hacked, document.querySelectorAll('main script, main img').length]"
    ) == [None, 0]


def test_arrow_keys_go_through_tabs_and_utterances(browser, page):
    open_page(browser, page)
    key = "(target, key) => target.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
    browser.execute_script(f"({key})(document.getElementById('tab-overview'), 'ArrowRight')")
    assert browser.execute_script("return document.activeElement.id") == "tab-compare"
    open_page(browser, page, "utterances")
    for _ in range(2):
        browser.execute_script(f"({key})(document.getElementById('table'), 'ArrowDown')")
    second = shown(browser)[1]["id"]
    assert wait(browser, "return document.querySelector('#detail h3')?.textContent") == second
    assert browser.execute_script("return location.hash") == f"#utterances/{second}"


@pytest.mark.parametrize("width", [390, 1280])
def test_no_view_is_wider_than_the_window(browser, page, width):
    open_page(browser, page, "utterances", width=width)
    fields = set(shown(browser)[0])
    assert {"id", "a", "b", "d"} <= fields and ("speaker" in fields) == (width > 760)
    browser.execute_script(f"document.querySelector('{ROWS}').click()")
    assert wait(browser, "return document.querySelectorAll('#detail .reference td').length") >= 4
    for tab in ("overview", "compare", "utterances", "mixers"):
        browser.execute_script(f"document.getElementById('tab-{tab}').click()")
        wait(browser, f"return !document.getElementById('panel-{tab}').hidden")
        assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width, tab


AN4 = ROOT / "results/published/an4"
SPEAKERS, WORDS = "#by-speaker .tabulator-row", "#by-word .tabulator-row"


def mean_errors(arm, count):
    """{(utterance, key): (errors, occurrences)} of AN4's test set, errors meant over the arm's three seeds; `count` yields both by key."""
    found = {}
    references = {u.id: u for u in read_manifest(AN4 / "manifests/test.tsv")}
    for seed in (0, 1, 2):
        for u in read_score(AN4 / f"own/{arm}/seed{seed}/score/test.tsv").utterances:
            for key, errors, occurrences in count(u, references[u.id]):
                before = found.get((u.id, key), (0.0, 0))[0]
                found[u.id, key] = (before + errors / 3, occurrences)
    return found


def ratio_interval(x, words):
    """Points and their 95 % ends: the t-interval of sum(x) / sum(words), by the residuals of each cluster."""
    x, words = np.array(x, float), np.array(words, float)
    ratio = x.sum() / words.sum()
    error = np.std(x - ratio * words, ddof=1) * np.sqrt(len(x)) / words.sum()
    return 100 * ratio, *stats.t(len(x) - 1, loc=100 * ratio, scale=100 * error).interval(0.95)


def test_intervals_of_the_page_are_those_of_the_scores(browser):
    """On AN4: between speakers, over a speaker's utterances, and of each word over speakers."""
    open_page(browser, AN4 / "page/index.html", "compare")
    set_value(browser, "#panel-compare select[data-side=a]", "own/grassmann")
    set_value(browser, "#panel-compare select[data-side=b]", "own/attention")
    whole = lambda u, _: [("", u.words.errors, u.words.reference)]
    a, b = mean_errors("grassmann", whole), mean_errors("attention", whole)
    speaker = {u.id: u.speaker for u in read_manifest(AN4 / "manifests/test.tsv")}
    differences = {i: (a[i, key][0] - b[i, key][0], words) for (i, key), (_, words) in a.items()}
    of = lambda name: [d for i, d in differences.items() if speaker[i] == name]
    ends = lambda low, high, digits: f"[{low:+.{digits}f}, {high:+.{digits}f}]"

    clusters = [np.sum(of(name), axis=0) for name in sorted(set(speaker.values()))]
    value, low, high = ratio_interval(*zip(*clusters, strict=True))
    line = browser.execute_script(
        "return [...document.querySelector('#by-set tbody tr').cells].map(c => c.textContent)"
    )
    assert (line[0], line[5], line[6]) == ("test", f"{value:+.2f}", ends(low, high, 2))

    by_speaker = wait(browser, f"return document.querySelectorAll('{SPEAKERS}').length") and shown(browser, SPEAKERS)
    assert len(by_speaker) == 10
    for row in by_speaker:
        name = row["speaker"]
        value, low, high = ratio_interval(*zip(*of(name), strict=True))
        assert (row["d"], row["low"]) == (f"{value:+.1f}", ends(low, high, 1)), name

    def missed(u, reference):
        steps = [step for step in u.alignment if step != "I"]
        said = dict.fromkeys(reference.text.split())
        for word in said:
            places = [i for i, w in enumerate(reference.text.split()) if w == word]
            yield word, sum(steps[i] != "=" for i in places), len(places)

    a, b = mean_errors("grassmann", missed), mean_errors("attention", missed)
    by_word = wait(browser, f"return document.querySelectorAll('{WORDS}').length") and shown(browser, WORDS)
    assert len(by_word) > 5
    for row in by_word:
        word = row["word"]
        by = {}
        for (i, key), (errors, count) in a.items():
            if key == word:
                by.setdefault(speaker[i], []).append((errors - b[i, key][0], count))
        value, low, high = ratio_interval(*zip(*(np.sum(each, axis=0) for each in by.values()), strict=True))
        assert (row["d"], row["low"]) == (f"{value:+.1f}", ends(low, high, 1)), word


def test_a_difference_of_clusters_of_one_size_has_the_interval_of_a_t_test(browser):
    x = np.random.default_rng(0).normal(1, 2, 9)
    open_page(browser, AN4 / "page/index.html", "compare")
    found = browser.execute_script("return page.difference(arguments[0])", [[value, 20] for value in x])
    expected = stats.ttest_1samp(100 * x / 20, 0).confidence_interval(0.95)
    assert [found["low"], found["high"]] == pytest.approx(expected, rel=1e-4)
