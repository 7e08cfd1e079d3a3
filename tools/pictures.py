"""Put the pictures of the pages into docs/pictures: `make pictures` runs the test that makes them.

A picture is a screenshot of tests/ui/test_tutorial.py, which follows the tutorial in a browser. It
is committed as WebP, and changes only when somebody runs this and looks at it.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
SHOTS = ROOT / "build" / "screenshots" / "tutorial"
FOLDER = ROOT / "docs" / "pictures"
TEST = "the_tutorial_works_from_the_first_cell_to_the_last"
PICTURES = {"cell.webp": "running", "failed.webp": "failed", "tensorboard.webp": "tensorboard"}
"""Name of a picture, and of the screenshot that it is made of."""
MOST_BYTES = 150_000


def main() -> None:
    """Write each picture, and refuse one that is too large for a clone."""
    FOLDER.mkdir(exist_ok=True)
    for name, shot in PICTURES.items():
        with Image.open(SHOTS / f"{TEST}-{shot}.png") as picture:
            picture.convert("RGB").save(FOLDER / name, quality=85, method=6)
        size = (FOLDER / name).stat().st_size
        assert size <= MOST_BYTES, f"{name} has {size} bytes: at most {MOST_BYTES}"
        print(f"docs/pictures/{name}: {size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
