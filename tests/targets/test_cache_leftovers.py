"""The disk cache after killed writers, and on a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint

KEY = fingerprint("a module")

WRITER = """
import os, sys
from rlx.targets import private
from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint
replace = private.Folder.replace
def stop(*_):
    print("half", flush=True)
    sys.stdin.readline()
    replace(*_)
private.Folder.replace = stop
print(DiskCache(sys.argv[1]).put(sys.argv[2], b"payload"), flush=True)
"""


def test_what_killed_writers_left_goes_with_the_next_entry(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WRITER, str(folder), KEY]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) for _ in range(3)
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == b"half\n"
    *dead, alive = writers
    for writer in dead:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.communicate()
    assert len(list(folder.rglob("*.tmp"))) == 3
    cache = DiskCache(folder)
    assert cache.put(KEY, b"mine")
    assert len(list(folder.rglob("*.tmp"))) == 1
    assert alive.communicate(b"\n")[0] == b"True\n"
    assert cache.get(KEY) == b"payload" and not list(folder.rglob("*.tmp"))


FULL = """
import logging, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
logging.basicConfig(stream=sys.stdout)
from rlx.targets.cache import DiskCache
from rlx.targets.hashes import fingerprint
for _ in range(3):
    cache = DiskCache(sys.argv[1])
    print(cache.put(sys.argv[2], bytes(200)), cache.get(sys.argv[2]))
"""


def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FULL, str(tmp_path / "cache"), KEY]
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert told.count("False None") == 3 and told.count("WARNING:rlx:cannot write to the cache") == 1, told
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
