"""A program that reads a file in its own folder and writes its result there."""

import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "words.txt")) as file:
    words = file.read().split()
with open(os.path.join(HERE, "vocabulary.json"), "w") as file:
    json.dump(sorted(set(words)), file)
print("vocabulary of", len(set(words)))
