/* The least an HTTP server can do: one thread that receives inference requests and sends answers, and nothing between.
 *
 *     floor UPSTREAM_PORT SPINS        prints its port; SPINS 1: polls its sockets instead of sleeping
 *
 * An answer holds the request's own tensors as one FP32 output of identity_fp32. What is no inference request goes on
 * to the real server at UPSTREAM_PORT: perf_analyzer asks for metadata, and for statistics, which must move meanwhile.
 * For benchmarks: requests are believed, and of BODY_BYTES_MAX at most. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BODY_BYTES_MAX = 1 << 20, HEAD_BYTES_MAX = 1 << 10, EVENTS = 64 };

struct connection {
    int fd;
    size_t filled, total; /* bytes of the request that are here, and all (0: not known yet) */
    size_t tensors_at;    /* where in it they begin; 0: no inference request */
    struct iovec unsent[2]; /* of the answer: its head, the tensors */
    char head[HEAD_BYTES_MAX];
    char request[BODY_BYTES_MAX + HEAD_BYTES_MAX];
};

static int upstream_port;

static size_t number_of(const char *head, const char *field)
{
    const char *found = strcasestr(head, field);
    return found == NULL ? 0 : strtoul(found + strlen(field), NULL, 10);
}

/* Whether the head is there: fills in `total` and, of an inference request, `tensors_at`. */
static int read_head(struct connection *c)
{
    char *end = memmem(c->request, c->filled, "\r\n\r\n", 4);
    if (end == NULL) return 0;
    *end = 0;
    size_t head_bytes = (size_t)(end - c->request) + 4;
    size_t json_bytes = number_of(c->request, "\r\nInference-Header-Content-Length:");
    c->total = head_bytes + number_of(c->request, "\r\nContent-Length:");
    c->tensors_at = json_bytes == 0 ? 0 : head_bytes + json_bytes;
    *end = '\r';
    if (c->total > sizeof c->request) errx(1, "a request of %zu bytes; %zu is the most", c->total, sizeof c->request);
    return 1;
}

static void send_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN) err(1, "send");
        if (sent > 0) data += sent, n -= (size_t)sent;
    }
}

static struct sockaddr_in here(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Ask the real server; its answer's bytes lie in `answer`. */
static size_t ask(const char *request, size_t n, char *answer, size_t room)
{
    struct sockaddr_in address = here((uint16_t)upstream_port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0) err(1, "port %d", upstream_port);
    send_all(fd, request, n);
    size_t filled = 0, total = 0;
    while (total == 0 || filled < total) {
        ssize_t got = read(fd, answer + filled, room - filled - 1);
        if (got <= 0) errx(1, "the real server's answer ends after %zu bytes", filled);
        filled += (size_t)got;
        answer[filled] = 0;
        char *end = strstr(answer, "\r\n\r\n");
        if (end != NULL) total = (size_t)(end - answer) + 4 + number_of(answer, "\r\nContent-Length:");
    }
    close(fd);
    return filled;
}

static void forward(struct connection *c)
{
    static const char json[] = "{\"inputs\":[{\"name\":\"INPUT0\",\"datatype\":\"FP32\",\"shape\":[1],\"data\":[1]}]}";
    static char answer[BODY_BYTES_MAX];
    char one[HEAD_BYTES_MAX];
    int n = snprintf(one, sizeof one,
                     "POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: floor\r\nContent-Length: %zu\r\n\r\n%s",
                     sizeof json - 1, json);
    if (memmem(c->request, c->filled, "/stats", 6) != NULL) ask(one, (size_t)n, answer, sizeof answer);
    send_all(c->fd, answer, ask(c->request, c->filled, answer, sizeof answer));
}

static void watch(int epoll, struct connection *c, uint32_t events, int how)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll, how, c->fd, &event) < 0) err(1, "epoll_ctl");
}

/* Send what the socket takes; the rest waits for EPOLLOUT. */
static void answer(int epoll, struct connection *c, int waited)
{
    while (c->unsent[1].iov_len > 0) {
        struct msghdr message = {.msg_iov = c->unsent, .msg_iovlen = 2};
        ssize_t sent = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            if (!waited) watch(epoll, c, EPOLLOUT, EPOLL_CTL_MOD);
            return;
        }
        if (sent < 0) break; /* gone: the next read says so */
        for (int i = 0; i < 2; i++) {
            size_t n = (size_t)sent < c->unsent[i].iov_len ? (size_t)sent : c->unsent[i].iov_len;
            c->unsent[i].iov_base = (char *)c->unsent[i].iov_base + n;
            c->unsent[i].iov_len -= n;
            sent -= (ssize_t)n;
        }
    }
    c->unsent[1].iov_len = 0;
    if (waited) watch(epoll, c, EPOLLIN, EPOLL_CTL_MOD);
}

static void on_request(int epoll, struct connection *c)
{
    if (c->tensors_at == 0) {
        forward(c);
    } else {
        size_t n = c->total - c->tensors_at;
        char json[HEAD_BYTES_MAX / 2];
        int json_bytes = snprintf(json, sizeof json,
            "{\"model_name\":\"identity_fp32\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"OUTPUT0\","
            "\"datatype\":\"FP32\",\"shape\":[%zu],\"parameters\":{\"binary_data_size\":%zu}}]}", n / 4, n);
        int head_bytes = snprintf(c->head, sizeof c->head,
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n"
            "Content-Length: %zu\r\n\r\n%s", json_bytes, (size_t)json_bytes + n, json);
        c->unsent[0] = (struct iovec){c->head, (size_t)head_bytes};
        c->unsent[1] = (struct iovec){c->request + c->tensors_at, n};
        answer(epoll, c, 0);
    }
    c->filled = c->total = 0;
}

static void on_readable(int epoll, struct connection *c)
{
    for (;;) {
        size_t room = (c->total != 0 ? c->total : sizeof c->request) - c->filled;
        ssize_t got = read(c->fd, c->request + c->filled, room);
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            close(c->fd);
            free(c);
            return;
        }
        c->filled += (size_t)got;
        if (c->total == 0 && !read_head(c)) continue;
        if (c->filled < c->total) continue;
        on_request(epoll, c);
        return; /* the client sends no more before it has the answer */
    }
}

static struct connection *accepted(int listener)
{
    struct connection *c = calloc(1, sizeof *c);
    if (c == NULL || (c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) < 0) err(1, "accept");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return c;
}

int main(int count, char **arguments)
{
    if (count != 3) errx(2, "usage: floor UPSTREAM_PORT SPINS");
    upstream_port = atoi(arguments[1]);
    int wait_ms = atoi(arguments[2]) ? 0 : -1;
    struct sockaddr_in address = here(0);
    socklen_t size = sizeof address;
    struct connection listener = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
    setsockopt(listener.fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4); /* as tisfast does: front/congestion_control.py */
    if (bind(listener.fd, (struct sockaddr *)&address, size) < 0 || listen(listener.fd, EVENTS) < 0) err(1, "listen");
    getsockname(listener.fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int epoll = epoll_create1(0);
    watch(epoll, &listener, EPOLLIN, EPOLL_CTL_ADD);
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(epoll, events, EVENTS, wait_ms);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (c == &listener) watch(epoll, accepted(listener.fd), EPOLLIN, EPOLL_CTL_ADD);
            else if (events[i].events & EPOLLOUT) answer(epoll, c, 1);
            else on_readable(epoll, c);
        }
    }
}
