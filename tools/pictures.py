"""Update docs/pictures from screenshots: `make pictures` runs the test that takes them.

The screenshots are from tests/ui/test_tutorial.py, which follows the tutorial in a browser. They
are committed as WebP, and change only when a developer runs this script and checks the result.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
SHOTS = ROOT / "build" / "screenshots" / "tutorial"
FOLDER = ROOT / "docs" / "pictures"
TEST = "the_tutorial_works_from_the_first_cell_to_the_last"
PICTURES = {"cell.webp": "running", "failed.webp": "failed", "tensorboard.webp": "tensorboard"}
"""The screenshot for each picture."""
MOST_BYTES = 150_000


def main() -> None:
    """Write each picture; fail if one is larger than `MOST_BYTES`, because every clone of the
    repository contains it.
    """
    FOLDER.mkdir(exist_ok=True)
    for name, shot in PICTURES.items():
        with Image.open(SHOTS / f"{TEST}-{shot}.png") as picture:
            picture.convert("RGB").save(FOLDER / name, quality=85, method=6)
        size = (FOLDER / name).stat().st_size
        assert size <= MOST_BYTES, f"{name} has {size} bytes: at most {MOST_BYTES}"
        print(f"docs/pictures/{name}: {size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
