import argparse

parser = argparse.ArgumentParser()
parser.add_argument("numbers")
parser.add_argument("--times", type=int, default=1)
args = parser.parse_args()
with open(args.numbers) as file:
    print("sum", args.times * sum(map(int, file)))
