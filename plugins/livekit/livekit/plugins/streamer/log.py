"""The logger of the plug-in."""

import logging

logger = logging.getLogger("livekit.plugins.streamer")
