"""The register of XLA's defects is correct, its options avoid them, and an error names the defects of an unsound jaxlib."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.cli.main import main
from rlx.support.errors import Error
from rlx.targets.xla import client, soundness
from rlx.targets.xla.defects import DEFECTS, WORKAROUNDS, Defect

_UNKNOWN = (("xla_cpu_no_such_option", ""),)


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A jaxlib without the options, and without a cached check."""
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(client, "WORKAROUNDS", _UNKNOWN)
    client._sound_options.cache_clear()
    client.slot.cache_clear()
    yield
    client._sound_options.cache_clear()


def _run() -> float:
    g = rlx.Graph("twice")
    g.set_outputs([g.input("x", ()) * 2])
    (result,) = rlx.Session("xla").compile(g, cache=False).run({"x": np.float32(3)})
    return float(result)


def _is_older(than: str) -> bool:
    numbers = [[int(part) for part in text.split(".")[:3]] for text in (metadata.version("jaxlib"), than)]
    return numbers[0] < numbers[1]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_defect(defect: Defect) -> None:
    if _is_older(defect.seen):
        pytest.skip(f"it was seen with jaxlib {defect.seen}")
    assert soundness.shows(defect, workaround=False), (
        f"{defect.name} is gone: remove its entry, and options that only it needs"
    )
    assert not soundness.shows(defect), f"{defect.name} shows in spite of {defect.workaround}"


def test_names_are_different() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)


def test_options_that_jaxlib_lacks_are_left_out() -> None:
    assert client.known_options(_UNKNOWN) == ()
    assert set(client.known_options(WORKAROUNDS + _UNKNOWN)) <= set(WORKAROUNDS)


@pytest.mark.usefixtures("lacking")
def test_a_sound_jaxlib_needs_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(soundness, "shows", lambda defect: asked.append(defect.name))
    for _ in range(2):
        assert _run() == 6
    client._sound_options.cache_clear()  # as in another process
    client.slot.cache_clear()
    assert _run() == 6
    assert asked == [defect.name for defect in DEFECTS]  # once, because the result is cached on disk


@pytest.mark.usefixtures("lacking")
def test_an_unsound_jaxlib_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundness, "shows", lambda defect: defect is DEFECTS[0])
    for _ in range(2):
        with pytest.raises(
            rlx.Error, match=rf"jaxlib {metadata.version('jaxlib')} is not sound.*\({DEFECTS[0].name}\)"
        ) as caught:
            _run()
        assert "install another version: pip install" in str(caught.value)


@pytest.mark.usefixtures("lacking")
def test_doctor_names_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from rlx.cli import doctor

    monkeypatch.setattr(doctor, "_CHECKS", {"xla": doctor._CHECKS["xla"]})
    monkeypatch.setattr(soundness, "shows", lambda defect: defect is DEFECTS[1])
    assert main(["doctor", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert not finding["ok"]
    for told in (f"jaxlib {metadata.version('jaxlib')}", DEFECTS[1].what, "pip install"):
        assert told in finding["found"]


def test_a_process_that_was_killed_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlx.targets.worker.process import WorkerDied

    def killed(*_: object, **__: object) -> None:
        raise WorkerDied(-9, False, "")

    monkeypatch.setattr(soundness._pool, "request", killed)
    with pytest.raises(Error, match=r"cannot be checked: the process was killed by signal 9"):
        soundness.shows(DEFECTS[0])
