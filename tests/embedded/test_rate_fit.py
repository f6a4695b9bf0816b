"""The syllable network of the training goes on from the one that ships."""

import numpy as np

from pipelines.embedded.rate_net import Net
from streamer.core.measures import density


def test_it_goes_on_from_the_network_that_ships():
    arrays, shipped = Net.shipped().arrays(), density.learnt()
    for i, (kernel, bias) in enumerate(zip(shipped.kernels, shipped.biases, strict=True)):
        np.testing.assert_array_equal(arrays[f"kernel{i}"], kernel)
        np.testing.assert_array_equal(arrays[f"bias{i}"], bias)
    np.testing.assert_array_equal(arrays["head"], shipped.head)
