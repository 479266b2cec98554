"""Entry of every worker interpreter: `python -I <this file> nursery <fd> <parent-pid> [module to import]`.

`-I` keeps the environment's own variables and the current folder out of sys.path, so this file adds its folder itself.
"""

import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))


def main(arguments):
    """Exit code of a nursery, or of an instance forked from it."""
    from tisfast_worker import instance  # noqa: PLC0415 - only now on the path
    from tisfast_worker.nursery import Nursery  # noqa: PLC0415

    if len(arguments) not in (3, 4) or arguments[0] != "nursery":
        print(f"usage: {sys.argv[0]} nursery <fd> <parent-pid> [module]; tisfast starts it", file=sys.stderr)
        return 2
    nursery = Nursery(int(arguments[1]), int(arguments[2]), "".join(arguments[3:]))
    order = nursery.run()
    if order is None:
        return 0
    # The forked child comes back all the way up here: it shares no frame with the nursery, and ends as programs do.
    library, nursery_pid = nursery.library, nursery.pid
    del nursery
    return instance.run(order, library, nursery_pid)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
