import getopt
import sys

steps, name = 3, ""
options, rest = getopt.getopt(sys.argv[1:], "n:", ["job_name=", "steps="])
for option, value in options:
    if option == "--job_name":
        name = value
    else:
        steps = int(value)
assert not rest, rest
print(name, "does", steps)
