"""A program whose default data folder is next to it."""

import argparse
import csv
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--data_dir", default=str(pathlib.Path(__file__).parent / "data"))
parser.add_argument("--output_dir", default="out")
args = parser.parse_args()
with open(pathlib.Path(args.data_dir) / "prices.csv") as file:
    rows = list(csv.DictReader(file))
out = pathlib.Path(args.output_dir)
out.mkdir(exist_ok=True)
(out / "mean.txt").write_text(str(sum(float(row["price"]) for row in rows) / len(rows)))
print("read", len(rows), "rows")
