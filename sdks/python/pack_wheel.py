"""Packs the files of a folder into a wheel: `pack_wheel.py FOLDER WHEEL LEVEL`.

The same files give the same bytes: names are sorted, times are fixed. `cargo xtask dist` writes the folder.
"""

import base64
import hashlib
import os
import sys
import zipfile
from pathlib import Path


def pack(folder: Path, wheel: Path, level: int) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "RECORD")
    (info,) = folder.glob("*.dist-info")
    record = info / "RECORD"
    # The list of files comes last, as the format recommends, and has no hash of itself.
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for path in paths:
            name = path.relative_to(folder).as_posix()
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}")
            add(archive, name, data, is_program=os.access(path, os.X_OK))
        name = record.relative_to(folder).as_posix()
        add(archive, name, "\n".join([*lines, f"{name},,", ""]).encode(), is_program=False)


def add(archive: zipfile.ZipFile, name: str, data: bytes, *, is_program: bool) -> None:
    entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if is_program else 0o100644) << 16
    archive.writestr(entry, data, compresslevel=archive.compresslevel)


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
