"""Write a training checkpoint as a model folder in the published layout: fp16 weights, tokenizer,
streamer.json."""

import argparse
import copy
import json
import os
import tempfile
from pathlib import Path

import torch
from transformers import WhisperFeatureExtractor

from pipelines.embedded import tokenizer
from pipelines.embedded.model import SIZES, create
from pipelines.embedded.sentences import LANGUAGES, attributes


def load_run(size: str, path: Path):
    """The model of a run's last.pt, in eval mode: the average of its weights, if there is one."""
    model = create(SIZES[size], 0)
    state = torch.load(path, "cpu", weights_only=True)
    model.load_state_dict(state.get("average", state["model"]))
    return model.eval()


def card(name: str) -> dict:
    """streamer.json; gate.py puts the gate's thresholds in. The first language stands at the
    top, the others under `languages` with the same keys."""
    first, *others = (spoken(language) for language in LANGUAGES)
    return {
        "version": 1,
        "name": f"embedded-{name}",
        "max_turn_s": 60,
        "gate": {},
        **first,
        "languages": {other["language"]: other for other in others},
    }


def spoken(language: str) -> dict:
    """The prompt, the words and the sentence without speech of one language."""
    return {
        "language": language,
        "prompt": {"prefix": tokenizer.PREFIX, "suffix": tokenizer.SUFFIXES[language]},
        "attributes": attributes(language),
        "openings": [text.replace("|", "") for text in LANGUAGES[language].openings],
    }


def export(model, name: str, out: Path) -> None:
    """Write into a folder beside `out`, then rename file by file: a reader never sees half a
    file."""
    half = copy.deepcopy(model).half()
    text, generation = half.config.text_config, half.generation_config
    generation.eos_token_id = [text.eos_token_id, text.pad_token_id]
    generation.pad_token_id = text.pad_token_id
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as temporary:
        folder = Path(temporary)
        half.save_pretrained(folder)
        tokenizer.save(folder)
        sizes = {"feature_size": 128, "chunk_length": 300}
        WhisperFeatureExtractor(**sizes, return_attention_mask=True).save_pretrained(folder)
        (folder / "streamer.json").write_text(
            json.dumps(card(name), ensure_ascii=False, indent=1) + "\n"
        )
        for file in folder.iterdir():
            file.chmod(0o644)
            os.replace(file, out / file.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), required=True)
    parser.add_argument("--run", type=Path, required=True, help="a last.pt")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    export(load_run(args.size, args.run), args.size, args.out)


if __name__ == "__main__":
    main()
