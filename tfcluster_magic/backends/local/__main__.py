"""Entry point of a supervisor: `python -I -S __main__.py RUN_FOLDER LOCK_FD READY_FD
IMPORT_PATH...`.

The supervisor detaches by a second fork, so that the launching process has no child to wait for. It
runs isolated and without `site`, so that no code of the user (modules in the current folder,
PYTHONPATH, .pth files) runs in it.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    sys.path += sys.argv[4:]
    from tfcluster_magic.backends.local.supervisor import main

    main(sys.argv[1], lock_fd=int(sys.argv[2]), ready_fd=int(sys.argv[3]))
