"""A rendezvous like torch's store: SO_REUSEADDR, then bind, on every address."""

import json
import os
import socket
import time

config = json.loads(os.environ["TF_CONFIG"])
workers, index = config["cluster"]["worker"], config["task"]["index"]
host, port = workers[0].rsplit(":", 1)
if index == 0:
    server = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.bind(("::", int(port)))
    server.listen(64)
    left = len(workers) - 1
    while left:
        peer, _ = server.accept()
        peer.sendall(b"welcome")
        peer.close()
        left -= 1
else:
    until = time.time() + 60
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=5) as peer:
                print(peer.recv(100).decode())
            break
        except OSError:
            if time.time() > until:
                raise
            time.sleep(0.1)
print("rank", index, "left the store")
