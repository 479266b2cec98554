"""One execution of a batch, and what its requests ask for while it runs."""

from tisfast_worker.call_record import NOBODY


class Execution:
    """The execution of one batch.

    deliver(request, response): shows an answer at once; None: answers wait until the execution is done.
    taken_ns: when the batch was taken, CLOCK_MONOTONIC; times: taken, inference started, inference ended.
    leases, tickets: of the requests that are to run; refused: (ticket, code, text) of those that are not.
    seen: what the model is given, where that is more than the requests; None: they are it.
    senders: (request, SingleAnswer) of those that asked for their sender; sent: the `id` of those that it has answered.
    rescheduled: requests whose release flags ask for another execution.
    attempts: how often it was tried; arrays: the lease that the arrays of the whole batch refer to, or None; on_gpu:
    whether the GPU may read inputs where they lie, in its own memory or in pinned memory.

    Requests refer to it, and a model may keep a request.  So nothing in it refers to a request, or to memory of one,
    when its answers are shown.
    """

    __slots__ = (
        *("arrays", "attempts", "deliver", "leases", "on_gpu", "refused", "rescheduled", "seen"),
        *("senders", "sent", "taken_ns", "tickets", "times"),
    )

    def __init__(self, deliver, taken_ns):
        """Nothing of it has been read yet."""
        self.deliver, self.taken_ns, self.times = deliver, taken_ns, (taken_ns, taken_ns, taken_ns)
        self.leases, self.tickets = [], []
        self.refused = self.senders = self.rescheduled = self.sent = ()
        self.seen = self.arrays = None
        self.attempts, self.on_gpu = 0, False

    @property
    def parent(self):
        """The ticket that stands for the whole batch in calls that the model makes."""
        return self.tickets[0] if self.tickets else NOBODY

    def ticket_of(self, lease):
        """The ticket of the request that this lease is for; None for none."""
        ticket = lease.__dict__.get("ticket")
        if ticket is not None:
            return ticket
        for at, each in enumerate(self.leases):
            if each is lease:
                return self.tickets[at]
        return None

    def refuse(self, ticket, code, text):
        """A request shall not run."""
        if not self.refused:
            self.refused = []
        self.refused.append((ticket, code, text))

    def answer_by(self, request, answer):
        """A request asked for its sender, which gives this SingleAnswer."""
        if not self.senders:
            self.senders = []
        self.senders.append((request, answer))

    def take_answers(self):
        """The answers of all senders by the requests' `id`, and no sender any more.

        From here on only user code holds the senders; letting go of one ends the wait for its answer.
        """
        answers = {}
        for request, answer in self.senders:
            answers[id(request)] = answer
            request._sender = None
        self.senders = ()
        return answers

    def answered(self, request):
        """A request's sender has shown its answer."""
        if not self.sent:
            self.sent = set()
        self.sent.add(id(request))

    def reschedule(self, request, wanted):
        """Whether the request wants to be executed once more."""
        others = [each for each in self.rescheduled if each is not request]
        self.rescheduled = [*others, request] if wanted else others

    def forget_rescheduled(self):
        """All is answered, whatever release flags said."""
        self.rescheduled = ()
