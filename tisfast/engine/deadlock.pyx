"""Calls that could never be answered; see deadlock.pxd.  Layer 3 (engine).

An instance that waits for a call executes nothing else.  It goes on if each of its calls can be answered: by the instance
that has the request, or, while that is queued, by any instance of the model.  Calls that go on are found
from those that do not wait, outwards, until none is added: the rest never will.
"""

from tisfast.engine.core cimport InferRequest, Link, AnswerSink
from tisfast.engine.interface cimport Runtime
from tisfast.engine.runtime cimport ModelRuntime


cdef class OpenCalls:
    """See deadlock.pxd."""


cdef class OpenCall(AnswerSink):
    """See deadlock.pxd."""


cdef bint stuck(Link caller, Runtime callee) except -1:
    cdef Link link
    cdef list callees = callee.needs()
    cdef Runtime each
    for each in callees:
        if is_served(each, caller):
            continue
        if not can_answer(each, going_on(caller, each)):
            return True
    return False


# The usual case, without a look at anybody else: some instance waits for nobody, or is about to be there.
cdef bint is_served(Runtime callee, Link caller) except -1:
    cdef Link link
    if not callee.links or not callee.ready:
        return True
    for link in callee.links:
        if link is not caller and not waits(link):
            return True
    return False


cdef bint can_answer(Runtime callee, set going) except -1:
    for link in callee.links:
        if link in going:
            return True
    return False


# Whether an instance executes a request that waits for a call.
cdef bint waits(Link link) except -1:
    cdef OpenCall call
    if link.calls is None:
        return False
    for call in (<OpenCalls>link.calls).open.values():
        if call.waits:
            return True
    return False


# Of all instances that matter for `callee`, those that can go on when `caller` waits for it.
cdef set going_on(Link caller, Runtime callee):
    cdef set known = {caller}, going = set()
    cdef list ahead = list(callee.links)
    cdef list waiting = []
    cdef Link link
    cdef bint grew = True
    while ahead:
        link = ahead.pop()
        if link in known:
            continue
        known.add(link)
        if not waits(link):
            going.add(link)
            continue
        waiting.append(link)
        ahead += answering(link)
    while grew:
        grew = False
        for link in waiting:
            if link not in going and goes_on(link, going):
                going.add(link)
                grew = True
    return going


# Whether each call that an instance waits for is with somebody that goes on.
cdef bint goes_on(Link link, set going) except -1:
    cdef OpenCall call
    for call in (<OpenCalls>link.calls).open.values():
        if call.waits and not any([each is None or each in going for each in answering_one(call)]):
            return False
    return True


# All instances on which the calls of one instance depend.
cdef list answering(Link link):
    cdef OpenCall call
    cdef list found = []
    for call in (<OpenCalls>link.calls).open.values():
        if call.waits:
            found += [each for each in answering_one(call) if each is not None]
    return found


# Those that may answer one call: who has it, else all of the model; None stands for somebody unknown, who may.
cdef list answering_one(OpenCall call):
    cdef Link link
    if call.request is None or call.request.done or not call.callee.links or not call.callee.ready:
        return [None]
    if call.request.queued:
        return list(call.callee.links)
    for link in call.callee.links:
        if link.has(call.request):
            # A decoupled model's request that was begun is answered by whatever thread has it.
            return [None] if call.callee.signature.decoupled and link.batches == 0 else [link]
    return [None]


cdef bint withheld(Link caller, OpenCall call, Runtime callee) except -1:
    cdef Runtime each
    cdef list holders = None
    for each in callee.needs():
        if not isinstance(each, ModelRuntime) or (<ModelRuntime>each).limiter is None or not each.links:
            continue
        if holders is None:
            holders = waiting_claims(caller, call)
        if holders and not any([may_ever_run(link, holders) for link in each.links]):
            return True
    return False


cdef bint may_ever_run(Link link, list holders) except -1:
    return link.claim is None or link.claim.fits_beside(holders)


# The claims of the instances that wait for a call: its caller's, and those of who waits for the caller in turn.
cdef list waiting_claims(Link caller, OpenCall call):
    cdef InferRequest request
    cdef list found = [], ahead = [(caller, call)]
    cdef set known = set()
    while ahead:
        link, asked = ahead.pop()
        if link in known:
            continue
        known.add(link)
        if (<Link>link).claim is not None:
            found.append((<Link>link).claim)
        for request in (<OpenCall>asked).parents:
            while request is not None:
                if isinstance(request.sink, OpenCall):
                    ahead.append(((<OpenCall>request.sink).calls.link, request.sink))
                    break
                request = request.parent
    return found
