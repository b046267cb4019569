"""Where the book lives, and under which tag: set in _config.yml, copied from there to wherever it is needed.

    python tools/release.py                      say what is not in step, change nothing
    python tools/release.py --url URL --tag TAG  set them (either alone is fine) and bring everything in step

After a change of the set-up cells run `make notebooks`.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG = re.compile(r"^repository:\n  url: (?P<url>\S+)\n  branch: (?P<tag>\S+)$", re.M)

# what is copied: file pattern -> (what it is, a pattern whose groups 1 and 3 stay, the text of group 2)
COPIES = {
    "book/*.md": [("set-up cell", r'(^    name, tag = ")([^"]*", "[^"]*)(")', '{slug}", "{tag}')],
    "CITATION.cff": [("repository", r'(^repository-code: ")([^"]*)(")', "{url}"),
                     ("version", r"(^version: )(\S+)($)", "{version}")],
    "pyproject.toml": [("repository", r'(^Repository = ")([^"]*)(")', "{url}")],
    "README.md": [("link", r"(\]\()(https://(?:colab\.research\.google\.com/github/|mybinder\.org/v2/gh/|github\.com/)[^)]*)(\))", None)],
}


def place():
    """URL, tag and version, from the files that decide them."""
    found = CONFIG.search((ROOT / "_config.yml").read_text("utf8"))
    if not found:
        sys.exit("_config.yml has no 'repository:' with 'url:' and 'branch:' below it")
    version = re.search(r'__version__ = "([^"]+)"', (ROOT / "poslib" / "__init__.py").read_text("utf8"))[1]
    return {**found.groupdict(), "version": version, "slug": "/".join(found["url"].split("/")[-2:])}


def in_link(old, here):
    """A link into the repository, moved to the URL and tag of today."""
    old = re.sub(r"(github\.com/|colab\.research\.google\.com/github/|mybinder\.org/v2/gh/)[^/]+/[^/)]+", rf"\g<1>{here['slug']}", old)
    return re.sub(r"(github(?:\.com)?/[^/]+/[^/]+/(?:blob|tree)/|mybinder\.org/v2/gh/[^/]+/[^/]+/)[^/?]+", rf"\g<1>{here['tag']}", old)


def wanted(text, rules, here):
    """The text as it should be, and what in it is not."""
    wrong = []
    for what, pattern, template in rules:
        def put(match):
            new = template.format(**here) if template else in_link(match[2], here)
            if new != match[2]:
                wrong.append(f"{what} says {match[2]}, not {new}")
            return match[1] + new + match[3]
        text = re.sub(pattern, put, text, flags=re.M)
    return text, wrong


def check(write=False):
    """What is not in step with _config.yml, as sentences; with `write` it is mended."""
    here, found = place(), []
    for pattern, rules in COPIES.items():
        for path in sorted(ROOT.glob(pattern)):
            text, wrong = wanted(path.read_text("utf8"), rules, here)
            found += [f"{path.relative_to(ROOT)}: {sentence}" for sentence in wrong]
            if wrong and write:
                path.write_text(text, "utf8")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--url", help="as https://github.com/OWNER/NAME")
    parser.add_argument("--tag", help="a tag or branch, as v0.2.0 or main")
    options = parser.parse_args()
    if options.url and not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", options.url):
        sys.exit(f"--url is {options.url!r}; allowed is https://github.com/OWNER/NAME")
    if options.tag and not re.fullmatch(r"[\w.-]+", options.tag):
        sys.exit(f"--tag is {options.tag!r}; allowed are letters, digits, dots, dashes")
    if options.url or options.tag:
        here, config = place(), ROOT / "_config.yml"
        new = f"repository:\n  url: {options.url or here['url']}\n  branch: {options.tag or here['tag']}"
        config.write_text(CONFIG.sub(new, config.read_text("utf8")), "utf8")
        print("\n".join(check(write=True)) or "nothing had to change")
        return 0
    found = check()
    print("\n".join(found) or "in step: {url}, {tag}".format(**place()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
