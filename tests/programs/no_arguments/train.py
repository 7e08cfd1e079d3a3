import sys

if len(sys.argv) > 1:
    sys.exit(f"usage: {sys.argv[0]} (no arguments; --data_dir was removed)")
print("trained")
