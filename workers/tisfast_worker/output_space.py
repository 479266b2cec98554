"""Outputs that are computed where they go to the client from: a block of the output arena, taken before the model runs.

Of executions of one request, as each answer has a block of its own.  Whatever a backend makes of the offer, the answer
is right: arrays that are not those of the block are copied, as always.
"""


class OutputSpace:
    """The output space of one instance.  Only while `execute_arrays` runs."""

    def __init__(self, writer):
        """`writer`: the AnswerWriter."""
        self._writer = writer
        self._request, self._requests, self._places = None, (), True

    def wants(self, name):
        """Whether any client of this batch asks for this output.  What nobody asks for need not be computed."""
        spec = self._writer.spec_of(name)
        return spec is not None and any(r._head[3] >> spec.index & 1 for r in self._requests if not r.null)

    def take(self, shapes):
        """Arrays to compute into by output name, from shapes by output name; {} when that wins nothing, or has no room.

        What is returned in their place, or left out, does no harm.  Outputs of BYTES, and those that the client did not
        ask for, are not among the arrays.
        """
        request, self._request = self._request, None
        if request is None:
            return {}
        asked, wanted = request._head[3], []
        for name, shape in shapes.items():
            spec = self._writer.spec_of(name)
            if spec is not None and asked >> spec.index & 1:
                wanted.append((spec, tuple(shape)))
        return self._writer.reserve(request, wanted)

    def open(self, requests, places=True):
        """These are executed next; outputs lie where they are to go, or stay on the GPU, only if there are `places`."""
        self._places = places
        alone = places and len(requests) == 1 and not requests[0].null
        self._request, self._requests = requests[0] if alone else None, requests

    def close(self):
        """They have been."""
        self._request, self._requests = None, ()

    def give_up(self):
        """Nothing is written of what was computed."""
        self.close()
        self._writer.give_up()
