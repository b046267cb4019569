"""Packs what a release offers: the built book, the wheel and their checksums, into _build/archive.

    python tools/archive.py        after `make book`
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE, OUT = ROOT / "_build" / "html", ROOT / "_build" / "archive"
LONG_AGO = (1980, 1, 1, 0, 0, 0)        # the same book gives the same archive


def pack(site, path):
    """Zip a folder, with its name as the top folder; names sorted, times fixed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(site.rglob("*")):
            if file.is_file() and file.name not in (".buildinfo", "environment.pickle"):
                entry = zipfile.ZipInfo(f"{path.stem}/{file.relative_to(site).as_posix()}", LONG_AGO)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, file.read_bytes())


def main():
    sys.path.insert(0, str(ROOT))
    from poslib import __version__

    if not (SITE / "index.html").exists():
        sys.exit("the book is not built; run make book")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    pack(SITE, OUT / f"position-in-transformers-{__version__}-html.zip")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(OUT), str(ROOT)], check=True)
    sums = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}" for f in sorted(OUT.iterdir())]
    (OUT / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    print("\n".join(sums))


if __name__ == "__main__":
    main()
