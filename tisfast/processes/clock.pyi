from typing import final

from tisfast.engine.core import Clock

@final
class MachineClock(Clock): ...
