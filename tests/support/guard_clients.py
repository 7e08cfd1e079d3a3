"""Texts of programs that connect to a guarded server as another user account of this machine."""

from __future__ import annotations

IMPORTS = "import ctypes, encodings.idna, fcntl, os, platform, resource, socket, struct, sys, time"


BECOME = f"{IMPORTS}; os.geteuid() or os.setgroups([]); os.setresuid(*3 * [int(sys.argv[1])])"


CLIENT = f"""
{BECOME}
with socket.create_connection((sys.argv[2], int(sys.argv[3])), timeout=90) as connection:
    if sys.argv[4:]: connection.shutdown(socket.SHUT_WR)
    try: print(connection.recv(100).decode(errors="replace"))
    except ConnectionResetError: pass
"""
