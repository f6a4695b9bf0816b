"""Rooms import only what they may; importing is instant and without torch."""

import ast
import os
import sys
import tomllib

from places import ROOT
from processes import python

PACKAGE = ROOT / "streamer"
STDLIB = set(sys.stdlib_module_names)


def named(names):
    return set(names.split())


ROOMS = {  # room -> (our modules it may import, others beside the standard library)
    "core": (named("core"), named("numpy soxr msgspec")),
    "model": (
        named("core model extras"),
        named(
            "numpy msgspec torch transformers tokenizers safetensors huggingface_hub numba llvmlite"
        ),
    ),
    "stages": (named("core stages"), named("anyio numpy")),
    "net": (
        named("core stages net extras"),
        named("anyio websockets msgspec numpy prometheus_client"),
    ),
}
EXTRAS = {  # extra -> (our modules it may import beside its own, others beside the standard library)
    "coach": (named("core model stages"), named("numpy msgspec")),
    "tune": (
        named("core model audio commands config describer progress"),
        named("msgspec numpy torch transformers tokenizers peft safetensors"),
    ),
    "large": (named("core model"), named("numpy msgspec torch numba llvmlite")),
    "mcp": (named("commands config core"), named("mcp")),
    "otel": (named("core net"), named("opentelemetry")),
    "fleet": (
        named("net core commands config"),
        named("anyio websockets msgspec prometheus_client ray"),
    ),
}
FORBIDDEN_IN_CORE = named("asyncio socket threading time random selectors ssl http urllib")


def imports_of(file):
    """Modules, those under TYPE_CHECKING and inside functions included."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield node.module


def check(file, ours, others, own=()):
    """It imports only these rooms, its own, the standard library and `others`; None: all."""
    for name in imports_of(file):
        top, *rest = name.split(".")
        assert top not in ("pipelines", "bench", "clients", "tests"), f"{file}: {name}"
        is_own = own and (rest[:2] == [*own] or rest == ["extras"])  # the table: no other extra
        if top == "streamer" and ours is not None and not is_own:
            assert rest or own, f"{file}: imports the top"  # to an extra, the public API
            assert not rest or rest[0] in ours, f"{file}: {name}"
        if others is not None:
            assert top in STDLIB | others | {"streamer"}, f"{file}: {name}"


def test_a_room_imports_only_through_its_doors():
    """No room names an extra's module: it asks `streamer.extras.load` for an entry point."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if (room := file.relative_to(PACKAGE).parts[0]) == "extras":
            continue
        check(file, *ROOMS.get(room, (None, None)))
        for name in imports_of(file):
            assert room != "core" or name.partition(".")[0] not in FORBIDDEN_IN_CORE, file
            # the public API has the coach's names, too
            is_named = name.startswith("streamer.extras.") and file != PACKAGE / "public.py"
            assert not is_named, f"{file}: {name}"


def test_an_extra_imports_the_public_api_and_what_its_door_names():
    for file in sorted((PACKAGE / "extras").glob("*/**/*.py")):
        extra = file.relative_to(PACKAGE / "extras").parts[0]
        check(file, *EXTRAS[extra], own=("extras", extra))


def test_every_entry_point_is_there():
    from streamer.extras import ENTRY_POINTS, load

    for name in ENTRY_POINTS:
        assert load(name) is not None


def test_importing_needs_no_torch_and_no_ray():
    """Each is the first of ours to be imported."""
    modules = (
        "streamer",
        "streamer.cli",
        "streamer.core.decoding.machine",
        "streamer.describer",
        "streamer.extras.fleet.command",
        "streamer.extras.tune.command",
    )
    code = f"""import importlib, sys
for name in {modules}:
    for ours in [m for m in sys.modules if m.partition(".")[0] == "streamer"]:
        del sys.modules[ours]
    importlib.import_module(name)
print([m for m in ("torch", "transformers", "peft", "librosa", "ray") if m in sys.modules])"""
    assert python(code) == "[]\n"


def test_a_cold_start_imports_no_more_than_it_needs():
    """Seconds are noise; modules are not."""
    unwanted = named(
        "torch transformers huggingface_hub librosa matplotlib sklearn pandas PIL requests rich silero_vad websockets prometheus_client sympy"
    )
    code = f"""import gc, sys; from streamer.cli import main
assert main(["describe", {str(ROOT / "samples" / "fast_loud.wav")!r}, "--quiet"]) == 0
assert gc.isenabled()
assert gc.get_freeze_count() > 10_000
print([m for m in {sorted(unwanted)} if m in sys.modules])"""
    assert python(code).splitlines()[1:] == ["[]"]


def test_one_thread_reads_a_small_model():
    """On torch: four that wait for each other cost a second at every start."""
    code = """import torch
from streamer.config import Config
from streamer.assembly import Models
torch.set_num_threads(3)
Models(Config(engine="int8", mode="edge")).load()
print(torch.get_num_threads())"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    assert python(code, env=environment).split() == ["1"]


def test_only_streamer_is_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert packages == ["streamer", "streamer.*"]
    for name in project["project"]["dependencies"]:
        assert ">=" in name, f"{name}: no lower bound"
        assert ",<" in name, f"{name}: no upper bound"
