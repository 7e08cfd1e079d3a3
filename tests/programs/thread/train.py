"""A program in which a reader thread dies; the program continues and succeeds."""

import queue
import threading

numbers = queue.Queue()


def read():
    numbers.put(1)
    raise OSError("records-00001 is truncated")


reader = threading.Thread(target=read, name="reader")
reader.start()
reader.join()
print("trained on", numbers.qsize())
