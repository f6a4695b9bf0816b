"""An initialised thinker of a size, and a training forward that equals the stock one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import Qwen2_5OmniThinkerConfig, Qwen2_5OmniThinkerForConditionalGeneration

from pipelines.embedded.tokenizer import SPECIALS, build

WINDOW = 200  # frames, 2 s
SHAPES = 128  # the number of windows is a multiple of this on a GPU


@dataclass(frozen=True)
class Size:
    """Widths and depths; `text_heads` share two key-value heads, `mrope` sums to half a head."""

    tower_width: int
    tower_layers: int
    tower_heads: int
    text_width: int
    text_layers: int
    text_heads: int
    text_ffn: int
    mrope: tuple[int, int, int]


SIZES = {
    "edge": Size(128, 2, 4, 128, 2, 4, 384, (4, 6, 6)),
    "cloud": Size(192, 6, 6, 256, 4, 4, 704, (8, 12, 12)),
}
# as small as transformers allows
UNUSED_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 1}


def config(size: Size) -> Qwen2_5OmniThinkerConfig:
    tokenizer = build()
    ids = {name: tokenizer.token_to_id(name) for name in SPECIALS}
    vision = UNUSED_VISION | {"out_hidden_size": size.text_width, "fullatt_block_indexes": [0]}
    result = Qwen2_5OmniThinkerConfig(
        audio_config=audio_config(size),
        vision_config=vision,
        text_config=text_config(size, tokenizer.get_vocab_size(), ids),
        audio_token_index=ids["<|AUDIO|>"],
        image_token_index=ids["<|IMAGE|>"],
        video_token_index=ids["<|VIDEO|>"],
        audio_start_token_id=ids["<|audio_bos|>"],
        audio_end_token_id=ids["<|audio_eos|>"],
        pad_token_id=ids["<|endoftext|>"],
        tie_word_embeddings=True,
    )
    result.vision_start_token_id = ids["<|vision_bos|>"]
    result.vision_end_token_id = ids["<|vision_eos|>"]
    return result


def audio_config(size: Size) -> dict[str, Any]:
    return {
        "num_mel_bins": 128,
        "d_model": size.tower_width,
        "encoder_layers": size.tower_layers,
        "encoder_attention_heads": size.tower_heads,
        "encoder_ffn_dim": 4 * size.tower_width,
        "n_window": WINDOW // 2,
        "output_dim": size.text_width,
        "max_source_positions": 1500,
    }


def text_config(size: Size, num_ids: int, ids: Mapping[str, int]) -> dict[str, Any]:
    return {
        "vocab_size": num_ids,
        "hidden_size": size.text_width,
        "num_hidden_layers": size.text_layers,
        "num_attention_heads": size.text_heads,
        "num_key_value_heads": 2,
        "intermediate_size": size.text_ffn,
        "tie_word_embeddings": True,
        "max_position_embeddings": 4096,
        "initializer_range": 0.05,
        "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": list(size.mrope),
        },
    }


def create(size: Size, seed: int) -> Qwen2_5OmniThinkerForConditionalGeneration:
    """Fresh weights. The stock std of .02 leaves the convolutions 20 times weaker than the
    position sinusoids, and training stalls: 1/sqrt(fan_in) instead, half of it on what is added
    to the residual, twice on convolutions.
    """
    torch.manual_seed(seed)
    model = Qwen2_5OmniThinkerForConditionalGeneration(config(size))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "visual" in name or "embed" in name or weight.ndim < 2:
                continue
            onto_residual = name.split(".")[-2] in ("out_proj", "fc2", "o_proj", "down_proj")
            gain = 2.0 if "conv" in name else 0.5 if onto_residual else 1.0
            weight.normal_(0, gain / weight[0].numel() ** 0.5)
    return model


def in_windows(mels: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Turns [n_frames, 128] in the tower's windows, padded with zeros: [n_windows, 200, 128], the
    frames of each [n_windows], and the embeddings of each turn."""
    windows, lengths, counts = [], [], []
    for mel in mels:
        rest = -len(mel) % WINDOW
        windows.append(F.pad(mel, (0, 0, 0, rest)).view(-1, WINDOW, mel.shape[1]))
        lengths += [WINDOW] * (len(mel) // WINDOW) + [WINDOW - rest] * (rest > 0)
        counts.append(len(mel) // WINDOW * (WINDOW // 4) + ((WINDOW - rest) % WINDOW + 1) // 2 // 2)
    return torch.cat(windows), torch.tensor(lengths), counts


def tower(encoder, windows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The stock audio encoder on all windows of `in_windows` as one batch with a mask:
    [n_embeddings, width]. The stock forward loops over windows inside every layer.
    """
    place, num = torch.arange(windows.shape[1], device=windows.device), len(windows)
    if windows.is_cuda:  # cuDNN plans each new shape for a tenth of a second: let there be few
        windows = F.pad(windows, (0, 0, 0, 0, 0, -num % SHAPES))
        lengths = F.pad(lengths, (0, -num % SHAPES))
    inside = (place < lengths[:, None])[:, None]
    x = F.gelu(encoder.conv1(windows.transpose(1, 2))) * inside
    x, lengths = F.gelu(encoder.conv2(x)).transpose(1, 2)[:num], lengths[:num]
    x = x + encoder.positional_embedding.positional_embedding[: x.shape[1]]
    after = (lengths - 1) // 2 + 1
    mask = (place[: x.shape[1]] < after[:, None])[:, None, None]
    heads = encoder.config.encoder_attention_heads
    for layer in encoder.layers:
        y, attention = layer.self_attn_layer_norm(x), layer.self_attn
        q, k, v = (
            p(y).unflatten(-1, (heads, -1)).transpose(1, 2)
            for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + attention.out_proj(y.transpose(1, 2).flatten(2))
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    x = x.unflatten(1, (-1, 2)).mean(2)
    kept = place[: x.shape[1]] < (after // 2)[:, None]
    return encoder.proj(encoder.ln_post(x[kept]))
