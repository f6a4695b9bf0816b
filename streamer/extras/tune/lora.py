"""A model directory in; a thinker with low-rank adapters out: on the text model's products and on
the tower's projector (Hu et al. 2021, arXiv 2106.09685, by PEFT).

transformers' own modules run it. They are made without memory and filled by the checked reader of
model/engines/load.py: vision, talker and vocoder are never loaded.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen2_5OmniThinkerConfig as StockConfig
from transformers import Qwen2_5OmniThinkerForConditionalGeneration as Stock

from streamer.extras.tune.examples import Example
from streamer.model.checkpoint.shapes import Shapes
from streamer.model.checkpoint.weights import ModelError
from streamer.model.engines.load import SMALL, load_weights

TARGETS = (
    r"model\.language_model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
    r"|model\.audio_tower\.proj"
)
SCALE = 2.0  # of what the adapters add
TEXT, TOWER = "model.language_model.", "model.audio_tower."


def stock_name(name: str) -> str:
    """A tensor's name in transformers 5.x, from that in 4.x."""
    if name.startswith("audio_tower."):
        return "model." + name
    return TEXT + name.removeprefix("model.") if name.startswith("model.") else name


def plain_name(name: str) -> str:
    """The other way."""
    if name.startswith(TOWER):
        return name.removeprefix("model.")
    return "model." + name.removeprefix(TEXT) if name.startswith(TEXT) else name


def load_frozen(directory: Path, shapes: Shapes, device: str, dtype: torch.dtype) -> Any:
    """transformers' thinker with these weights in `dtype`, all frozen. Raises ModelError."""
    raw = json.loads((directory / "config.json").read_text("utf-8"))
    config = StockConfig.from_dict(raw.get("thinker_config", raw))
    with torch.device("meta"):
        model: Any = Stock._from_config(config, attn_implementation="sdpa", dtype=dtype)
    weights = load_weights(directory, dtype, device)
    model.model.visual = None
    tower, text = model.model.audio_tower, model.model.language_model
    tower.audio_bos_eos_token = None
    model.load_state_dict({stock_name(n): w for n, w in weights.items()}, strict=False, assign=True)
    if shapes.text.tied:
        model.lm_head.weight = text.embed_tokens.weight
    with torch.device(device):  # tables that no file holds
        text.rotary_emb = type(text.rotary_emb)(config=text.config)
        places = tower.positional_embedding
        tower.positional_embedding = type(places)(places.length, places.channels)
    if empty := [name for name, weight in model.named_parameters() if weight.is_meta]:
        raise ModelError(directory, f"the weights lack {plain_name(empty[0])!r}")
    return model.requires_grad_(False)


class Adapted:
    """A frozen thinker and its adapters, the only thing that is learnt."""

    def __init__(
        self, directory: Path, shapes: Shapes, device: str, dtype: torch.dtype, rank: int, seed: int
    ) -> None:
        stock = load_frozen(directory, shapes, device, dtype)
        if sum(weight.numel() for weight in stock.parameters()) > SMALL:
            # a layer's inside is computed again on the way back, and not kept
            how = {"use_reentrant": False}
            stock.model.language_model.gradient_checkpointing_enable(how)
        torch.manual_seed(seed % 2**64)  # it takes no more
        alpha = round(SCALE * rank)
        wanted = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=TARGETS)
        with warnings.catch_warnings():  # PEFT asks transformers by an old name
            warnings.simplefilter("ignore", FutureWarning)
            self.model: Any = get_peft_model(stock, wanted)
        self.audio_id = shapes.audio_id
        self.device = device

    def parameters(self) -> list[Tensor]:
        """What is learnt, float32."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def adapter(self) -> dict[str, Tensor]:
        """A copy of the adapters, by PEFT's names, on the CPU."""
        found = get_peft_model_state_dict(self.model)
        return {name: weight.detach().to("cpu", copy=True) for name, weight in found.items()}

    def set_adapter(self, weights: dict[str, Tensor]) -> None:
        set_peft_model_state_dict(self.model, weights)

    def losses(self, examples: Sequence[Example]) -> Tensor:
        """The cross-entropy of each id that is known, over all `examples`, in nats."""
        hidden = self._hidden(examples)
        first = [len(e.prompt) - 1 for e in examples]
        said = [
            h[at : at + len(e.answer)][torch.from_numpy(e.is_known).to(h.device)]
            for h, at, e in zip(hidden, first, examples, strict=True)
        ]
        wanted = [torch.tensor(e.answer)[torch.from_numpy(e.is_known)] for e in examples]
        logits = self.model.base_model.model.lm_head(torch.cat(said)).float()
        return F.cross_entropy(logits, torch.cat(wanted).to(self.device), reduction="none")

    def _hidden(self, examples: Sequence[Example]) -> Tensor:
        """[len(examples), longest, hidden]; what is padded stands behind, where no id looks."""
        inner = self.model.base_model.model.model
        mels = [torch.from_numpy(e.mel()) for e in examples]
        lengths = torch.tensor([mel.shape[1] for mel in mels], device=self.device)
        audio = inner.audio_tower(torch.cat(mels, 1).to(self.device), feature_lens=lengths)
        rows = [torch.tensor([*e.prompt, *e.answer[:-1]]) for e in examples]
        ids = pad_sequence(rows, batch_first=True).to(self.device)
        ends = torch.tensor([len(e.prompt) for e in examples], device=self.device)
        is_prompt = torch.arange(ids.shape[1], device=self.device) < ends[:, None]
        heard = (ids == self.audio_id) & is_prompt
        x = inner.language_model.embed_tokens(ids)
        x = x.masked_scatter(heard[..., None], audio.last_hidden_state.to(x.dtype))
        places = torch.arange(ids.shape[1], device=self.device).expand(3, len(ids), -1)
        out = inner.language_model(inputs_embeds=x, position_ids=places, use_cache=False)
        hidden: Tensor = out.last_hidden_state
        return hidden
