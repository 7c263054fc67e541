"""A made-up run whose transcripts hold HTML, with a few recordings; its page; and a browser."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from geomix.report import build_report
from geomix.report.page import build_page
from geomix.speech.manifest import Utterance, write_manifest
from tests.report import made_up

HTML = ["<script>window.hacked=1</script>", "<img/src=x/onerror=window.hacked=2>", "O'NEIL&CO"]
RECORDED = 4  # utterances of the set test that have a recording


@pytest.fixture(scope="session")
def made_up_run(tmp_path_factory):
    """Folder of the run, results/made_up."""
    root = tmp_path_factory.mktemp("page")
    folder, manifests = root / "results" / "made_up", {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_up, "WORDS", [*made_up.WORDS, *HTML])
        for name in made_up.SALTS:
            said = []
            for number, (id, speaker, words, _) in enumerate(made_up.references(name)):
                audio = root / "corpus" / name / f"{id}.wav"
                if name == "test" and number < RECORDED:
                    audio.parent.mkdir(parents=True, exist_ok=True)
                    soundfile.write(audio, 0.1 * np.sin(np.arange(8000) * (0.1 + 0.02 * number)), 16000)
                said.append(Utterance(id, speaker, str(audio), 8000, 1.0, " ".join(words)))
            manifests[name] = f"data/words/{name}/manifest/{name}.tsv"
            write_manifest(root / manifests[name], said)
        made_up.make_run(folder, seeds=(0, 1), manifests=manifests)
    make_tables(folder)
    return folder


def make_tables(folder, **options):
    """Tables of a run without its figures, which the page does not show and which take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geomix.report.build.draw_figures", lambda *_: [])
        build_report(folder, **options)


@pytest.fixture(scope="session")
def page(made_up_run):
    """The page of the made-up run, its recordings linked."""
    return build_page(made_up_run)


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window; its log keeps errors and requests."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no browser: install the Debian packages chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: make test installs it")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    for argument in (
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio", "--window-size=1280,900",
        "--autoplay-policy=no-user-gesture-required", *sandbox,
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    running.set_script_timeout(20)
    yield running
    running.quit()


def address(index: Path, tab: str = "") -> str:
    """The address of a page on disk."""
    return index.absolute().as_uri() + (f"#{tab}" if tab else "")
