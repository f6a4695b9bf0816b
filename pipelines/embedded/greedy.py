"""In: a model and embedded turns. Out: greedy sentences, and what a model would say after each id of a given one."""

import torch
from transformers import DynamicCache

from pipelines.embedded.joint import Prompted
from pipelines.embedded.model import tower

MAX_IDS = 64


def prompt_rows(model, prompted: Prompted, mel: torch.Tensor) -> torch.Tensor:
    """Prefix, audio, suffix as embeddings [n, width] for one turn's mel [n_frames, 128]."""
    embed = model.model.language_model.embed_tokens
    audio, _ = tower(model.model.audio_tower, [mel])
    return torch.cat([embed(prompted.prefix), audio, embed(prompted.suffix)])


@torch.inference_mode()
def describe(model, prompted: Prompted, mel: torch.Tensor) -> list[int]:
    """Greedy ids up to and without the end id."""
    text, cache, ids = model.model.language_model, DynamicCache(config=model.config.text_config), []
    x = prompt_rows(model, prompted, mel)[None]
    while len(ids) < MAX_IDS:
        hidden = text(inputs_embeds=x, past_key_values=cache, use_cache=True).last_hidden_state[:, -1]
        choice = int(model.lm_head(hidden).argmax())
        if choice == prompted.end:
            break
        ids.append(choice)
        x = text.embed_tokens(torch.tensor([[choice]]))
    return ids


@torch.inference_mode()
def follow(model, prompted: Prompted, mel: torch.Tensor, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's own choice before each id of `ids` [n], and the entropy of its softmax there [n], nats."""
    text = model.model.language_model
    row = torch.cat([prompt_rows(model, prompted, mel), text.embed_tokens(torch.tensor(ids[:-1]))])[None]
    hidden = text(inputs_embeds=row, use_cache=False).last_hidden_state[0, -len(ids) :]
    logp = model.lm_head(hidden).float().log_softmax(-1)
    return logp.argmax(-1), -(logp.exp() * logp).sum(-1)
