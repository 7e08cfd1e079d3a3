"""A program that fails within a step, with a sentence that gives the reason."""


class Diverged(Exception):
    pass


def check(loss):
    try:
        return 1 / loss
    except ZeroDivisionError as error:
        raise Diverged("loss became 0 at step 7:\nlower the learning rate") from error


for step in range(1, 10):
    print("step", step)
    check(7 - step)
