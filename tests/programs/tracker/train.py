"""Worker 0 opens the port that it was given, as trackers and stores do; the others connect."""

import json
import os
import socket
import time

config = json.loads(os.environ["TF_CONFIG"])
workers, index = config["cluster"]["worker"], config["task"]["index"]
host, port = workers[0].rsplit(":", 1)
if index == 0:
    time.sleep(1)  # time for reading data
    with socket.create_server(("", int(port)), reuse_port=False) as server:
        for _ in workers[1:]:
            other, _ = server.accept()
            print("met", other.recv(100).decode())
            other.sendall(b"ok")
            other.close()
else:
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(f"worker {index}".encode())
                connection.recv(100)
            break
        except OSError:
            time.sleep(0.1)
print("together")
