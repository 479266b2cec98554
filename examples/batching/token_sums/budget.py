"""No more than so many tokens in a batch, however many texts that are.  docs/batching.md says what may stand here."""

TOKENS_MAX = 4096


def begin(request):
    """The tokens of a batch that begins with this request."""
    return request.shapes["TOKENS"][-1]


def include(tokens, request):
    """The tokens of the batch with this request in it; None: it waits for the next batch."""
    tokens += request.shapes["TOKENS"][-1]
    if tokens > TOKENS_MAX:
        return None
    return tokens
