"""The gate's promise holds for its cloud model, k and threshold; others warn in one line."""

import json
import re
import shutil
import warnings

import pytest
from far import verifying
from speech import SAMPLES

from streamer import Config, Describer
from streamer.assembly.models import Models, PromiseWarning
from streamer.model.thinker import resolve

ANOTHER = r"the gate's promise was made for another cloud model \(embedded-cloud \w+, not \w+\); run streamer calibrate"


@pytest.fixture
def another_cloud(tmp_path):
    """The embedded cloud with another prompt: another model, as far as a promise goes."""
    directory = shutil.copytree(resolve("embedded", "cloud"), tmp_path / "cloud")
    card = json.loads((directory / "streamer.json").read_text("utf-8"))
    card["prompt"]["suffix"] += "说话人"
    (directory / "streamer.json").write_text(json.dumps(card), "utf-8")
    return directory


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"preset": "quality", "attributes": "acoustic"}, None),
        ({"threshold": 0.0}, None),  # it verifies more
        ({"mode": "exact", "k": 9, "attributes": "rate"}, None),
        ({"cloud": "none", "k": 9}, None),
        ({"attributes": "pitch,rate"}, "attributes rate,pitch"),
        ({"k": 7, "temperature": 0.8}, "k 7 and temperature 0.8"),
        ({"threshold": 5.0}, "threshold 5.0"),
    ],
)
def test_what_the_promise_was_not_made_for_warns_once(options, told):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        models = Models(Config(**options))
        models.load()
        for _ in range(2):
            models.check_promise(models.plan.rules)
    found = [str(one.message) for one in caught if one.category is PromiseWarning]
    assert len(found) == (told is not None)
    assert all(f"was not made for {told}; leave that out" in line for line in found)


async def test_another_cloud_elsewhere_warns_once(another_cloud, caplog):
    with verifying("--cloud", another_cloud) as (url, _):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", PromiseWarning)
            async with Describer.open(cloud=url) as describer:
                for file in SAMPLES[:2]:
                    assert (await describer.describe(file)).text
        (line,) = [str(one.message) for one in caught if one.category is PromiseWarning]
        assert re.fullmatch(ANOTHER, line)
        with warnings.catch_warnings(), caplog.at_level("WARNING", "streamer.notice"):
            warnings.simplefilter("error", PromiseWarning)  # the link's own task must bear it
            async with Describer.open(cloud=url) as describer:
                assert (await describer.describe(SAMPLES[0])).text
        assert re.fullmatch(ANOTHER, caplog.messages[-1])
