"""An initialised thinker of a size, and a training forward that equals the stock one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import Qwen2_5OmniThinkerConfig, Qwen2_5OmniThinkerForConditionalGeneration

from pipelines.embedded.tokenizer import SPECIALS, build


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
    "cloud": Size(128, 6, 4, 256, 4, 4, 704, (8, 12, 12)),
}


def config(size: Size) -> Qwen2_5OmniThinkerConfig:
    tokenizer = build()
    ids = {name: tokenizer.token_to_id(name) for name in SPECIALS}
    result = Qwen2_5OmniThinkerConfig(
        audio_config=audio_config(size),
        vision_config=unused_vision_config(size),
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
        "n_window": 100,
        "output_dim": size.text_width,
        "max_source_positions": 1500,
    }


def unused_vision_config(size: Size) -> dict[str, Any]:
    """As small as transformers allows: it is never used."""
    return {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 1,
        "out_hidden_size": size.text_width,
        "fullatt_block_indexes": [0],
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


def tower(encoder, mels: list[torch.Tensor]) -> tuple[torch.Tensor, list[int]]:
    """The stock audio encoder, batched over windows: list of [n_frames, 128] to ([n_embeddings,
    width], lengths).

    The stock forward loops over windows inside every layer; here all windows run as one batch with
    a mask.
    """
    windows = [w for mel in mels for w in mel.split(2 * encoder.n_window)]
    lengths = torch.tensor([len(w) for w in windows])
    x = torch.nn.utils.rnn.pad_sequence(windows, batch_first=True).transpose(1, 2)
    inside = (torch.arange(x.shape[2]) < lengths[:, None])[:, None]
    x = F.gelu(encoder.conv1(x)) * inside
    x = F.gelu(encoder.conv2(x)).transpose(1, 2)
    x = x + encoder.positional_embedding.positional_embedding[: x.shape[1]]
    after = (lengths - 1) // 2 + 1
    mask = (
        None
        if bool((after == x.shape[1]).all())
        else (torch.arange(x.shape[1]) < after[:, None])[:, None, None]
    )
    heads = encoder.config.encoder_attention_heads
    for layer in encoder.layers:
        y, attention = layer.self_attn_layer_norm(x), layer.self_attn
        q, k, v = (
            p(y).unflatten(-1, (heads, -1)).transpose(1, 2)
            for p in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        # fp32: the backward pass of torch's attention on a CPU is three times slower in bf16
        with torch.autocast("cpu", enabled=False):
            y = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask)
        x = x + attention.out_proj(y.transpose(1, 2).flatten(2))
        x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
    x = x[:, : x.shape[1] // 2 * 2].unflatten(1, (-1, 2)).mean(2)
    pooled = after // 2
    kept = torch.arange(x.shape[1]) < pooled[:, None]
    x = encoder.proj(encoder.ln_post(x[kept]))
    counts = [0] * len(mels)
    owner = [i for i, mel in enumerate(mels) for _ in mel.split(2 * encoder.n_window)]
    for i, n in zip(owner, pooled.tolist(), strict=True):
        counts[i] += n
    return x, counts


def hidden_states(
    model, rows: list[torch.Tensor], jumps: list[tuple[int, int]] | None = None
) -> torch.Tensor:
    """The text model on embedded rows [n, width] of any lengths, padded on the right: [batch,
    longest, width].

    A jump (at, by) moves every position from `at` on, so that short turns also see long distances.
    """
    x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    positions = torch.arange(x.shape[1]).repeat(len(rows), 1)
    for i, (at, by) in enumerate(jumps or ()):
        positions[i, at:] += by
    text = model.model.language_model
    return text(
        inputs_embeds=x, position_ids=positions.expand(3, -1, -1), use_cache=False
    ).last_hidden_state
