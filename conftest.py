"""For nbval: its kernels make static pages, and pictures are compared by their pixels."""

import base64
import io
import os
import re

import numpy as np

os.environ["POSLIB_STATIC"] = "1"      # inherited by the kernels

# Two machines may draw the edge of a letter differently, never a line or a number.
TOLERANCE = 2.0                        # root mean square over pixels, of 255


def pixels(png):
    from PIL import Image
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("L"), float)


def differing_pictures(test, reference):
    """A sentence for each picture that is not what is stored."""
    def drawn(outputs):
        return [o["data"]["image/png"] for o in outputs if "image/png" in o.get("data", {})]
    new, stored = drawn(test), drawn(reference)
    if len(new) != len(stored):
        return [f"{len(new)} pictures were drawn, {len(stored)} are stored"]
    found = []
    for i, (a, b) in enumerate(zip(map(pixels, new), map(pixels, stored))):
        if a.shape != b.shape:
            found.append(f"picture {i} has {a.shape} pixels, the stored one {b.shape}")
        elif (rms := float(np.sqrt(np.mean((a - b) ** 2)))) > TOLERANCE:
            found.append(f"picture {i} differs from the stored one by {rms:.1f} of 255 (root mean square)")
    return found


def pytest_configure():
    """nbval skips pictures, and markers that give their reason; let both count."""
    from nbval import plugin
    from nbval.plugin import IPyNbCell
    if hasattr(IPyNbCell, "compare_text"):
        return
    bare = plugin.find_comment_markers
    plugin.find_comment_markers = lambda source: bare(re.sub(r"(?m)^(\s*#\s*NBVAL_[A-Z_]+)\b.*$", r"\1", source))
    IPyNbCell.compare_text = IPyNbCell.compare_outputs

    def compare_outputs(self, test, ref, skip_compare=None):
        same = self.compare_text(test, ref, skip_compare)
        wrong = differing_pictures(test, ref)
        if wrong:
            self.comparison_traceback += wrong
        return same and not wrong

    IPyNbCell.compare_outputs = compare_outputs
