"""A program with settings in a YAML file, which arguments such as a.b=c override, as with hydra."""

import sys
from pathlib import Path

import yaml

settings = yaml.safe_load((Path(__file__).parent / "conf" / "config.yaml").read_text())
for word in sys.argv[1:]:
    name, equals, value = word.partition("=")
    if not equals:
        sys.exit(f"unexpected word {word}: this takes name=value only")
    *path, last = name.split(".")
    where = settings
    for part in path:
        where = where[part]
    if last not in where:
        sys.exit(f"no setting {name}")
    where[last] = yaml.safe_load(value)
for step in range(settings["train"]["steps"]):
    print(f"step {step + 1}/{settings['train']['steps']}")
print("rate was", settings["train"]["rate"])
