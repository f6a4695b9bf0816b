"""`streamer verifier --engine`: the model is loaded with it, and what fits no device is told."""

import pytest
from far import verifying
from processes import describe
from speech import SAMPLES

from streamer.cli import main


@pytest.mark.parametrize("engine", ["stable", pytest.param("int8", marks=pytest.mark.long)])
def test_a_verifier_takes_the_engines_of_describe(engine):
    """The same engine here and there says the same."""
    with verifying("--engine", engine) as (url, _):
        far = describe(SAMPLES[0], "--mode", "cloud", "--cloud", url, "--verify-budget-s", 60)
    near = describe(SAMPLES[0], "--mode", "cloud", "--engine", engine)
    assert far[0] == near[0] == 0
    assert far[1][0]["ids"] == near[1][0]["ids"]


def test_an_engine_of_the_cpu_on_a_gpu_is_told(capsys):
    assert main(["verifier", "--engine", "int8", "--device", "cuda"]) == 2
    assert (
        capsys.readouterr().err
        == "streamer: engine int8 is for the CPU only; take --device cpu, or engine fast\n"
    )
