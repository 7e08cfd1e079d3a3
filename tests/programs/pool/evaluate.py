import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--job_name", required=True)
print("evaluated by", parser.parse_args().job_name)
