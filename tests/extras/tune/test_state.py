"""What cannot be saved is told by what went wrong first."""

import pytest
import torch

from streamer.extras.tune.state import State, save
from streamer.extras.tune.turn import TuneError


def test_a_place_that_cannot_be_written_is_one_line_even_where_nothing_can_be_removed(tmp_path):
    """A folder lies in the way: it can neither be written as a file nor be removed as one."""
    (tmp_path / "state.pt.new").mkdir()
    optimiser = torch.optim.SGD([torch.zeros(1)])
    with pytest.raises(TuneError, match=r"state.pt cannot be written \(.*; make room"):
        save(tmp_path / "state.pt", State("d"), {}, optimiser)
    assert not (tmp_path / "state.pt").exists()
