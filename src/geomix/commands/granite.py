"""`geomix granite`: transcribe with a Granite Speech checkpoint, with its CTC head alone, or rewrite the checkpoint."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from geomix.commands.arguments import check_result, positive, whole
from geomix.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Sub-commands transcribe, ctc and export."""
    commands = parser.add_subparsers(dest="granite_command", required=True, metavar="COMMAND")
    for name, summary in (
        ("transcribe", "speech to text with the whole model"),
        ("ctc", "speech to text with the encoder's own CTC head: no language model, a sixth of the weights"),
    ):
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.add_argument("audio", nargs="+", type=Path, metavar="AUDIO", help="mono 16 kHz files (FLAC, WAV, ...)")
        sub.add_argument("--checkpoint", required=True, type=Path, metavar="DIR", help="folder of the checkpoint")
        sub.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:1, mps")
        sub.add_argument(
            "--dtype", default="float32", choices=["float32", "bfloat16", "float16"], help="default: float32"
        )
        sub.add_argument("--batch", type=whole(), default=8, metavar="N", help="windows decoded at once (default: 8)")
        sub.add_argument(
            "--window-seconds", type=positive, default=40.0, metavar="S",
            help="longer audio is cut into windows of at most this length, in a pause of each window's last 3 s (default: 40)",
        )  # fmt: skip
        sub.add_argument(
            "--json", type=Path, metavar="OUT", help="also write the windows: file, start and end in s, text"
        )
        sub.add_argument("--progress", action="store_true", help="show windows done, speed and time left")
        if name == "transcribe":
            sub.add_argument("--beams", type=whole(), default=1, metavar="N", help="1 (default) is greedy search")
            sub.add_argument(
                "--max-new-tokens", type=whole(), default=200, metavar="N", help="per window (default: 200)"
            )
            sub.add_argument("--prompt", metavar="TEXT", help="what the user turn asks for after the audio")
            sub.add_argument(
                "--system", metavar="TEXT", help='system turn; "" for none (default: that of the family\'s cards)'
            )
        else:
            sub.add_argument(
                "--alphabet", type=Path, metavar="FILE", help="one symbol a line, the blank first (3.2 needs it)"
            )
    export = commands.add_parser("export", help="rewrite a checkpoint: adapter merged, other names, other dtype")
    export.add_argument("--checkpoint", required=True, type=Path, metavar="DIR")
    export.add_argument("--out", required=True, type=Path, metavar="DIR", help="a folder that does not exist yet")
    export.add_argument(
        "--names", default="3.3", choices=["3.3", "3.2"], help="tensor names (default: 3.3, as transformers)"
    )
    export.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16", "float16"], help="default: float32"
    )


def run(arguments: argparse.Namespace) -> None:
    """Dispatch to the sub-command."""
    {"transcribe": _transcribe, "ctc": _transcribe, "export": _export}[arguments.granite_command](arguments)


def _transcribe(arguments: argparse.Namespace) -> None:
    from geomix.commands.recordings import finish, one_line, read_recording, told
    from geomix.files import write_text
    from geomix.models.granite.features import MIN_SAMPLES, SAMPLE_RATE
    from geomix.models.granite.transcription import cut_windows
    from geomix.speech.progress import Progress
    from geomix.studies.granite import make_transcriber

    check_result(arguments.json, *arguments.audio)
    failures, recordings, files = [], [], []
    for path in arguments.audio:
        with told(failures):  # before the weights are read
            recordings.append(read_recording(path, MIN_SAMPLES))
            files.append(path)
    if not files:
        finish(failures)
    options = {"dtype": arguments.dtype, "batch": arguments.batch, "window_seconds": arguments.window_seconds}
    head = "ctc"
    if arguments.granite_command == "transcribe":
        head = "decode"
        options |= {"beams": arguments.beams, "max_new_tokens": arguments.max_new_tokens}
        if arguments.prompt is not None:
            options["prompt"] = arguments.prompt
        if arguments.system is not None:
            options["system"] = arguments.system or None
    elif arguments.alphabet is not None:
        options["alphabet"] = arguments.alphabet
    pieces = sum(len(cut_windows(recording, arguments.window_seconds)) for recording in recordings)
    progress = Progress(f"granite {head}", pieces) if arguments.progress else None
    transcriber = make_transcriber(arguments.checkpoint, head, options, device=arguments.device, progress=progress)
    windows = transcriber.windows(recordings)
    if progress:
        progress.close()
    for index, path in enumerate(files):
        text = one_line(" ".join(window.text for window in windows if window.recording == index))
        print(f"{path}\t{text}")
    if arguments.json:
        seconds = lambda samples: round(samples / SAMPLE_RATE, 3)
        lines = [
            {
                "file": str(files[w.recording]),
                "start": seconds(w.start),
                "end": seconds(w.end),
                "text": w.text,
            }
            for w in windows
        ]
        write_text(arguments.json, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    finish(failures)


def _export(arguments: argparse.Namespace) -> None:
    from geomix.models.granite import save_checkpoint
    from geomix.models.granite.checkpoint import load_model

    if not arguments.checkpoint.is_dir():
        raise UserError(f"{arguments.checkpoint}: no such folder: give the folder of a Granite Speech checkpoint")
    save_checkpoint(load_model(arguments.checkpoint, dtype=arguments.dtype), arguments.out, names=arguments.names)
    for path in sorted(arguments.checkpoint.iterdir()):
        beside = path.suffix in (".json", ".jinja", ".txt") and "safetensors" not in path.name
        if beside and not path.name.startswith("adapter_") and not (arguments.out / path.name).exists():
            shutil.copy2(path, arguments.out / path.name)
    print(f"{arguments.out}: written with {arguments.names} names in {arguments.dtype}")
