"""The end of a helper process: one that answers over its stdin and stdout and keeps nothing of its own."""

import subprocess


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a helper, whatever it does, wait until it is gone, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            continue  # bytes that it never took
