"""Greedy sentences of a model, and its choice after each id of a given sentence."""

import torch
from transformers import DynamicCache

from pipelines.embedded.joint import Prompted
from pipelines.embedded.model import tower

MAX_IDS = 64


def prompt_rows(model, prompted: Prompted, mel: torch.Tensor, language: str = "zh") -> torch.Tensor:
    """Prefix, audio, suffix as embeddings [n, width] for one turn's mel [n_frames, 128]."""
    embed = model.model.language_model.embed_tokens
    audio, _ = tower(model.model.audio_tower, [mel])
    return torch.cat([embed(prompted.prefix), audio, embed(prompted.suffixes[language])])


@torch.inference_mode()
def describe_batch(
    model, prompted: Prompted, mels: list[torch.Tensor], language: str = "zh"
) -> list[list[int]]:
    """Greedy ids of several turns at once, padded on the left; the end id is left out."""
    text, cache = model.model.language_model, DynamicCache(config=model.config.text_config)
    rows = [prompt_rows(model, prompted, mel, language) for mel in mels]
    longest = max(map(len, rows))
    x = torch.stack([torch.nn.functional.pad(row, (0, 0, longest - len(row), 0)) for row in rows])
    mask = torch.stack([torch.arange(longest) >= longest - len(row) for row in rows]).long()
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    ids: list[list[int]] = [[] for _ in rows]
    ended = torch.zeros(len(rows), dtype=torch.bool)
    for _ in range(MAX_IDS):
        hidden = text(
            inputs_embeds=x,
            attention_mask=mask,
            position_ids=positions.expand(3, -1, -1),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        choice = model.lm_head(hidden).argmax(-1)
        ended |= choice == prompted.end
        if ended.all():
            break
        for i in (~ended).nonzero()[:, 0].tolist():
            ids[i].append(int(choice[i]))
        x, positions = text.embed_tokens(choice)[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, torch.ones(len(rows), 1, dtype=torch.long)], 1)
    return ids


@torch.inference_mode()
def describe(model, prompted: Prompted, mel: torch.Tensor) -> list[int]:
    """Greedy ids up to and without the end id."""
    text, cache, ids = model.model.language_model, DynamicCache(config=model.config.text_config), []
    x = prompt_rows(model, prompted, mel)[None]
    while len(ids) < MAX_IDS:
        hidden = text(inputs_embeds=x, past_key_values=cache, use_cache=True).last_hidden_state[
            :, -1
        ]
        choice = int(model.lm_head(hidden).argmax())
        if choice == prompted.end:
            break
        ids.append(choice)
        x = text.embed_tokens(torch.tensor([[choice]]))
    return ids


@torch.inference_mode()
def follow(
    model, prompted: Prompted, mel: torch.Tensor, ids: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's own choice before each id of `ids` [n], and the entropy of its softmax there
    [n], nats."""
    text = model.model.language_model
    row = torch.cat([prompt_rows(model, prompted, mel), text.embed_tokens(torch.tensor(ids[:-1]))])[
        None
    ]
    hidden = text(inputs_embeds=row, use_cache=False).last_hidden_state[0, -len(ids) :]
    logp = model.lm_head(hidden).float().log_softmax(-1)
    return logp.argmax(-1), -(logp.exp() * logp).sum(-1)
