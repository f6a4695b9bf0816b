"""The network that counts syllables: trunk, two heads, and the conditions it is trained under.

One trunk of convolutions over steps of 30 ms has two heads. The density head says how many
syllables each step holds; the phone head says which broad class of `phones.py` begins there, and
learns by CTC. The expected number of nuclei that the phone head starts is a second count.
`streamer/model/audio/density.py` runs the same network in NumPy.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.signal import lfilter
from torch import Tensor, nn

from pipelines.embedded.noise import recorded_noise
from pipelines.embedded.phones import CLASSES, NUM_NUCLEI
from streamer.core.measures.frames import BAND_HZ, BAND_PEAK
from streamer.model.audio import density
from streamer.model.audio.density import FLOOR, NUM_BANDS, STEP_FRAMES, in_bands

CHANNELS = 160
STRETCH = 0.28  # log of the tempo, at most


class StepNorm(nn.BatchNorm1d):
    """Batch norm over the steps that exist: padding has no part in the statistics."""

    def forward(self, values: Tensor, keep: Tensor) -> Tensor:
        """values [batch, channels, n]; keep [batch, 1, n], 1 where a step exists."""
        if self.training:
            num = keep.sum()
            mean = (values * keep).sum((0, 2)) / num
            variance = ((values - mean[:, None]).square() * keep).sum((0, 2)) / num
            self.running_mean.lerp_(mean.detach(), self.momentum)
            self.running_var.lerp_(variance.detach(), self.momentum)
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight / (variance + self.eps).sqrt()
        return values * scale[:, None] + (self.bias - mean * scale)[:, None]


class Net(nn.Module):
    """Steps [batch, n, STEP_FRAMES * NUM_BANDS] to log-posteriors of phones and syllables."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [STEP_FRAMES * NUM_BANDS, *(CHANNELS for _ in density.SPANS[1:])]
        self.layers = nn.ModuleList(
            nn.Conv1d(size, CHANNELS, 3, dilation=apart, padding=apart)
            for size, apart in zip(sizes, density.SPANS, strict=True)
        )
        self.norms = nn.ModuleList(StepNorm(CHANNELS) for _ in density.SPANS)
        self.head = nn.Linear(CHANNELS, len(CLASSES) + 1)
        nn.init.constant_(self.head.bias[-1], -1.9)  # about five syllables/s

    @classmethod
    def shipped(cls) -> "Net":
        """The network of density.npz, to go on from. The norms are folded into it, and stay so."""
        net, known = cls().eval(), density.learnt()
        with torch.no_grad():
            for i, (layer, norm) in enumerate(zip(net.layers, net.norms, strict=True)):
                kernel = torch.from_numpy(known[f"kernel{i}"])
                layer.weight.copy_(kernel.unflatten(0, (3, -1)).permute(2, 1, 0))
                layer.bias.zero_()
                norm.bias.copy_(torch.from_numpy(known[f"bias{i}"]))
                norm.running_var.fill_(1 - norm.eps)
            net.head.weight.copy_(torch.from_numpy(known["head"]).T)
            net.head.bias.copy_(torch.from_numpy(known["head_bias"]))
        return net

    def forward(self, steps: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        """here: [batch, n], 1 where a step exists. Returns log-posteriors [batch, n, classes] and
        syllables per step [batch, n]."""
        keep = here[:, None]
        hidden = steps.transpose(1, 2)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.training):
                found = layer(hidden)
            new = F.relu(norm(found.float(), keep))
            hidden = (new if i == 0 else hidden + new) * keep
        said = self.head(hidden.transpose(1, 2))
        return said[..., :-1].log_softmax(-1), F.softplus(said[..., -1])

    def arrays(self) -> dict[str, np.ndarray]:
        """Kernels [3 * inputs, outputs] and biases with the norms folded in, and the head."""
        found = {}
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
            kernel = layer.weight.detach() * scale[:, None, None]
            bias = (layer.bias.detach() - norm.running_mean) * scale + norm.bias.detach()
            found[f"kernel{i}"] = kernel.permute(2, 1, 0).flatten(0, 1).numpy()
            found[f"bias{i}"] = bias.numpy()
        found["head"] = self.head.weight.detach().T.numpy()
        found["head_bias"] = self.head.bias.detach().numpy()
        return found


def begun(posteriors: Tensor) -> Tensor:
    """Nuclei expected to begin in each step [batch, n]: now, and not in the step before."""
    nuclei = posteriors[..., 1 : NUM_NUCLEI + 1].exp()
    before = F.pad(nuclei[:, :-1], (0, 0, 1, 0))
    return (nuclei * (1 - before)).sum(-1)


def over_their_means(bands: Tensor, here: Tensor) -> Tensor:
    """[batch, n, NUM_BANDS] frames, n a multiple of STEP_FRAMES, over the mean of the steps around,
    as steps [batch, n / STEP_FRAMES, STEP_FRAMES * NUM_BANDS]. here: [batch, steps]."""
    steps = bands.unflatten(1, (-1, STEP_FRAMES))
    means = steps.mean(2) * here[..., None]
    sums = F.pad(torch.cumsum(torch.cat([means, here[..., None]], 2), 1), (0, 0, 1, 0))
    at = torch.arange(here.shape[1])
    last = (at + density.AHEAD_STEPS + 1).clamp(max=here.shape[1])
    around = sums[:, last] - sums[:, (at - density.PAST_STEPS).clamp(min=0)]
    middle = around[..., :-1] / around[..., -1:].clamp(min=1)
    off = (steps - middle[:, :, None]).clamp(-density.MOST, density.MOST)
    return off.flatten(2) * here[..., None]


class Conditions:
    """Draws another tempo, voice, microphone, room, noise or telephone for each clip."""

    def __init__(self, noise: Path | None, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        banks = recorded_noise(noise) if noise else {}
        self.noises = {
            kind: [in_bands(np.log10(np.maximum(bank, 1e-10))) for bank in banks[kind]]
            for kind in ("noise", "babble")
            if kind in banks
        }
        peak = BAND_PEAK.reshape(NUM_BANDS, -1).mean(1)
        self.weights = (1.0 / peak).astype(np.float32)
        self.octaves = np.log2(np.maximum(BAND_HZ.reshape(NUM_BANDS, -1).mean(1), 20.0))

    def __call__(
        self, bands: np.ndarray, speech: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """bands [n, NUM_BANDS] log10, speech [n]: changed, and how many times as fast they are."""
        tempo = float(np.exp(self.chance.uniform(-STRETCH, STRETCH)))
        bands, speech = at_tempo(np.maximum(bands.astype(np.float32), FLOOR), speech, tempo)
        bands = self._another_voice(bands)
        if self.chance.random() < 0.35:
            bands = self._in_a_room(bands)
        if self.chance.random() < 0.5 and speech.any():
            bands = self._in_noise(bands, speech)
        if self.chance.random() < 0.1:
            bands = self._by_telephone(bands)
        if self.chance.random() < 0.4:
            bands, speech = self._after_a_wait(bands, speech)
        first = int(self.chance.integers(STEP_FRAMES))  # a step may begin at any frame
        return np.maximum(bands, FLOOR).astype(np.float32)[first:], speech[first:], tempo

    def no_speech(self, num: int) -> np.ndarray:
        """Noise without speech [num, NUM_BANDS]."""
        return np.maximum(self._noise(num, 0.0) - self.chance.uniform(0, 4), FLOOR)

    def _another_voice(self, bands: np.ndarray) -> np.ndarray:
        chance = self.chance
        at = np.clip(np.arange(NUM_BANDS) + chance.uniform(-2, 2), 0, NUM_BANDS - 1)
        low = np.minimum(at.astype(int), NUM_BANDS - 2)
        part = (at - low).astype(np.float32)
        bands = bands[:, low] * (1 - part) + bands[:, low + 1] * part
        curve = np.interp(np.arange(NUM_BANDS), np.linspace(0, 63, 6), chance.normal(0, 0.1, 6))
        tilt = chance.normal(0, 0.3) * np.linspace(-1, 1, NUM_BANDS)
        return bands + (curve + tilt).astype(np.float32)

    def _in_a_room(self, bands: np.ndarray) -> np.ndarray:
        decay = 10 ** (-6 / (100 * self.chance.uniform(0.15, 0.9)))
        power = np.float32(10.0) ** bands
        tail = lfilter([0, 1 - decay], [1, -decay], power, axis=0)
        # at 2 m the tail is up to 9 dB over the direct sound
        return np.log10(power + tail * 10 ** (-self.chance.uniform(-9, 18) / 10) + 1e-10)

    def _in_noise(self, bands: np.ndarray, speech: np.ndarray) -> np.ndarray:
        noise = self._noise(len(bands), 0.5)
        gap = self._level(bands[speech > 0]) - self._level(noise) - self.chance.uniform(-0.2, 2.5)
        return np.log10(np.float32(10.0) ** bands + 10.0 ** (noise + gap))

    def _noise(self, num: int, babble: float) -> np.ndarray:
        """Recorded noise, a `babble` share of it of people, or a steady one."""
        chance = self.chance
        recorded = chance.random() < 0.6
        found = self.noises.get("babble" if chance.random() < babble else "noise", [])
        if found and recorded:
            bank = found[chance.integers(len(found))]
            return bank[(chance.integers(len(bank)) + np.arange(num)) % len(bank)]
        slope = chance.uniform(-1.2, 0.3) * np.linspace(-1, 1, NUM_BANDS)
        return slope + 0.15 * chance.standard_normal((num, NUM_BANDS))

    def _by_telephone(self, bands: np.ndarray) -> np.ndarray:
        low, high = np.log2(self.chance.uniform(150, 350)), np.log2(self.chance.uniform(3200, 3900))
        outside = np.maximum(low - self.octaves, self.octaves - high).clip(0)
        return bands - (self.chance.uniform(2.4, 9.0) * outside).astype(np.float32)

    def _after_a_wait(self, bands: np.ndarray, speech: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Before the speech, up to 1.5 s of its room's tone, of noise, or of digital silence: the
        bands' means begin there."""
        num = int(self.chance.integers(20, 150))
        tone = np.percentile(bands, 8, axis=0) + 0.15 * self.chance.standard_normal((num, 1))
        noise = self._noise(num, 0.0)
        under = self._level(bands) - self._level(noise) - self.chance.uniform(1.0, 4.5)
        before = (tone, noise + under, np.full((num, NUM_BANDS), FLOOR))[self.chance.integers(3)]
        return np.concatenate([before, bands]), np.pad(speech, (num, 0))

    def _level(self, bands: np.ndarray) -> float:
        return float(np.log10((10.0**bands @ self.weights).mean() + 1e-12))


def at_tempo(bands: np.ndarray, speech: np.ndarray, tempo: float) -> tuple[np.ndarray, np.ndarray]:
    """As many syllables in fewer frames, or in more."""
    num = round(len(bands) / tempo)
    at = np.clip((np.arange(num) + 0.5) * (len(bands) / num) - 0.5, 0, len(bands) - 1)
    low = np.minimum(at.astype(int), len(bands) - 2)
    part = (at - low)[:, None].astype(np.float32)
    return bands[low] * (1 - part) + bands[low + 1] * part, speech[np.round(at).astype(int)]


def padded(clips: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[Tensor, Tensor, Tensor]:
    """Clips' bands and speech as one batch: steps over their means, which steps exist, and the
    share of speech in each step [batch, n]."""
    num = max(-(-len(bands) // STEP_FRAMES) for bands, _ in clips)
    frames = torch.full((len(clips), num * STEP_FRAMES, NUM_BANDS), FLOOR)
    here, speech = torch.zeros(len(clips), num), torch.zeros(len(clips), num * STEP_FRAMES)
    for i, (bands, spoken) in enumerate(clips):
        whole = -(-len(bands) // STEP_FRAMES) * STEP_FRAMES
        edge = np.pad(bands, ((0, whole - len(bands)), (0, 0)), mode="edge")
        frames[i, :whole] = torch.from_numpy(edge)
        here[i, : whole // STEP_FRAMES] = 1
        speech[i, : len(spoken)] = torch.from_numpy(spoken.astype(np.float32))
    return over_their_means(frames, here), here, speech.unflatten(1, (-1, STEP_FRAMES)).mean(2)


def masked(steps: Tensor, here: Tensor, chance: np.random.Generator) -> Tensor:
    """Steps with some bands and short stretches taken away, as a network must do without them."""
    steps = steps.unflatten(2, (STEP_FRAMES, NUM_BANDS)).clone()
    for i, num in enumerate(here.sum(1).int().tolist()):
        if chance.random() < 0.5:
            first = int(chance.integers(0, NUM_BANDS - 6))
            steps[i, :, :, first : first + int(chance.integers(1, 10))] = 0
        for _ in range(int(chance.integers(0, 1 + num // 50))):
            first = int(chance.integers(0, num))
            steps[i, first : first + int(chance.integers(1, 4))] = 0
    return steps.flatten(2)
