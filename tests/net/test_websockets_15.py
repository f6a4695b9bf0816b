"""The oldest websockets that we promise: server and clients under it, in processes of their own."""

import os
import subprocess
import sys

import pytest
from places import ROOT

RELEASE = "15.0.1"
FOLDER = ROOT / ".cache" / f"websockets-{RELEASE}"
ESSENTIALS = (
    "tests/net/realtime/test_clients.py::test_the_page_s_example_runs_as_it_stands",
    "tests/net/realtime/test_clients.py::test_the_official_async_client_with_voice_activity_and_strict_types",
    "tests/net/realtime/test_server.py::test_streamed_over_the_socket_equals_described",
    "tests/net/realtime/test_serving.py::test_http_and_admission",
    "tests/net/realtime/test_serving.py::test_a_turn_in_flight_is_answered_before_the_server_goes",
    "tests/net/realtime/test_resume.py::test_cut_at_random_nothing_is_lost_or_doubled[12]",
    "tests/net/realtime/test_resume.py::test_the_official_client_comes_back_by_on_reconnecting",
    "tests/net/realtime/test_page_served.py::test_pages_are_served_as_often_as_asked_with_their_policy",
    "tests/clients/test_link.py::test_a_link_that_is_cut_again_and_again_gives_the_same_text",
    "tests/clients/test_file.py::test_what_fails_is_told_in_one_line",
    "tests/clients/test_mic.py::test_it_says_how_someone_speaks_and_ends_with_ctrl_c",
)


@pytest.fixture(scope="module")
def environment():
    """Of processes that import that release."""
    if not FOLDER.exists():
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        subprocess.run(
            [*pip, "--target", FOLDER, f"websockets=={RELEASE}"], check=True, timeout=120
        )
    return os.environ | {"PYTHONPATH": str(FOLDER)}


def test_server_and_clients_work_with_it(environment):
    ask = [sys.executable, "-c", "import websockets; print(websockets.__version__)"]
    assert (
        subprocess.run(
            ask, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        == RELEASE
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ESSENTIALS]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    assert f"{len(ESSENTIALS)} passed" in done.stdout
