def batches(count):
    return [[index] * 3 for index in range(count)]


def main():
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--job_name", required=True)
    print(batches(2), parser.parse_args())


if __name__ == "__main__":
    main()
