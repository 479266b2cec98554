"""The first step of an execution: requests out of the slots of a batch."""

from tisfast_worker.completions import lease_type
from tisfast_worker.errors import ErrorCode
from tisfast_worker.failure import WireError
from tisfast_worker.foreign_memory import FLAG_FOREIGN
from tisfast_worker.native import TF_NULL
from tisfast_worker.record import RequestReader
from tisfast_worker.request import FLAG_CANCELLED

_UNUSUAL = FLAG_CANCELLED | FLAG_FOREIGN
CANCELLED_TEXT = "Request cancelled: the client left before the request ran"


class BatchReader:
    """The reader for models whose requests are answered when their execution is done."""

    def __init__(self, model, plane):
        """For one instance."""
        self._reader, self._foreign = RequestReader(model, plane.inputs.memory, plane.foreign), plane.foreign
        self._lease_type, self._lease_at = lease_type(plane.inputs.nbytes), plane.inputs.base
        self.free = []  # leases nobody refers to; each covers the whole arena

    def new_lease(self):
        """A lease on the input arena that nothing else refers to."""
        return self._lease_type.from_address(self._lease_at)

    def read(self, slots, execution):
        """The requests that are to run; the execution gets their leases and tickets, and what is refused."""
        requests, leases, tickets = [], execution.leases, execution.tickets
        free, reader = self.free, self._reader
        for _, _, _, nbytes, ticket, offset, _, told, _, _ in slots:
            if told != self._foreign.told:
                self._foreign.catch_up(told)
            lease = free.pop() if free else self._lease_type.from_address(self._lease_at)
            try:
                request = reader.read(offset, nbytes, lease, execution)
            except WireError as error:
                execution.refuse(ticket, ErrorCode.INTERNAL, str(error))
                continue
            if request._flags & _UNUSUAL:
                if request._flags & FLAG_CANCELLED:
                    execution.refuse(ticket, ErrorCode.CANCELLED, CANCELLED_TEXT)
                    continue
                self._foreign.open += request.windows.values()
                execution.on_gpu = execution.on_gpu or bool(request.devices)
            requests.append(request)
            leases.append(lease)
            tickets.append(ticket)
        return requests


class StreamReader:
    """The reader for decoupled models: each request has its sender from the start, and its memory until the end."""

    def __init__(self, model, plane, stream_writer):
        """`stream_writer`: the StreamWriter, which makes the senders."""
        self._reader, self._foreign = RequestReader(model, plane.inputs.memory, plane.foreign), plane.foreign
        self._lease_type, self._lease_at = lease_type(plane.inputs.nbytes), plane.inputs.base
        self._completions, self._stream_writer = plane.completions, stream_writer

    def read(self, slots, execution):
        """See BatchReader.read; the leases are not kept."""
        requests, tickets = [], execution.tickets
        for _, _, _, nbytes, ticket, offset, _, told, _, _ in slots:
            if told != self._foreign.told:
                self._foreign.catch_up(told)
            lease = self._lease_type.from_address(self._lease_at)
            try:
                request = self._reader.read(offset, nbytes, lease, execution)
            except WireError as error:
                execution.refuse(ticket, ErrorCode.INTERNAL, str(error))
                continue
            if request._flags & FLAG_CANCELLED:
                execution.refuse(ticket, ErrorCode.CANCELLED, CANCELLED_TEXT)
                continue
            self._completions.release_when_gone(lease, ticket, on_gpu=bool(request.devices))
            request._sender = self._stream_writer.open(request, ticket, execution.taken_ns)
            requests.append(request)
            tickets.append(ticket)
        return requests


class SequenceReader:
    """Around one of the others, for models with sequences: they see control tensors, state, and null requests."""

    def __init__(self, reader, sequences):
        """`sequences`: the Sequences of the instance."""
        self._reader, self._sequences = reader, sequences

    def read(self, slots, execution):
        """Read with the inner reader; `seen`: the requests that the model gets."""
        requests = self._reader.read([slot for slot in slots if not slot[1] & TF_NULL], execution)
        execution.seen = self._sequences.seat(slots, requests, execution.tickets)
        for request in requests:
            if request._sender is not None:  # a stream may outlast its sequence, whose slot another one has then
                request._sender.states = self._sequences.states(request.slot)
        return requests
