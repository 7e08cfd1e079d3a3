import argparse
import json
from importlib import resources

from . import model
from .model import Model

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
settings = json.loads(resources.files(__package__).joinpath("settings.json").read_text())
print(model.__name__, Model(settings["width"]).train(epochs))
