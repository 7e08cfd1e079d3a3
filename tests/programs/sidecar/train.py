"""A chief that trains, and an evaluator that evaluates each checkpoint until training ends."""

import json
import os
import pathlib
import time

task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
folder = pathlib.Path(os.environ["TFCLUSTER_OUTPUT_DIR"]) / "weights"
folder.mkdir(exist_ok=True)
if task == "evaluator":
    seen = set()
    while "3.txt" not in seen:
        for path in sorted(set(folder.glob("?.txt"))):
            if path.name not in seen:
                print("evaluated", path.name)
                seen.add(path.name)
        time.sleep(0.1)
else:
    for epoch in (1, 2, 3):
        time.sleep(0.2)
        part = folder / f"{epoch}.part"
        part.write_text(str(epoch))
        part.rename(folder / f"{epoch}.txt")
        print(f"epoch {epoch}/3")
