/* The least a gRPC client can do: one thread that sends one request again and again, and nothing between.
 *
 *     client_floor PORT IN_FLIGHT FRAMES MILLISECONDS
 *
 * The file FRAMES has the frames of one request, HEADERS and DATA, of stream 0: each request sends them with a number of
 * its own, as all that may change. An answer is a HEADERS frame that ends its stream; nothing else of it is read. One
 * epoll_wait, one recv and one send answer whatever has come meanwhile: a client that sleeps can do with no less.
 * For benchmarks, on this machine: the server is believed, and its windows are taken to be wide enough. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_BYTES = 9, REQUEST_BYTES_MAX = 1 << 16, BUFFER_BYTES = 1 << 20, IN_FLIGHT_MAX = 1024 };
enum { DATA = 0, HEADERS = 1, RESET = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW_UPDATE = 8 };
enum { END_STREAM = 1, ACK = 1 };

static uint8_t request[REQUEST_BYTES_MAX], received[BUFFER_BYTES], out[BUFFER_BYTES];
static size_t request_bytes, filled, unsent;
static uint32_t stream = 1, consumed, messages, answers;
static int fd;

static uint32_t number(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void set_number(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static size_t length(const uint8_t *frame)
{
    return number(frame) >> 8;
}

static void add(const void *data, size_t n)
{
    if (unsent + n > sizeof out) errx(1, "more than %zu bytes to send at one time", sizeof out);
    memcpy(out + unsent, data, n);
    unsent += n;
}

static void add_frame(uint8_t type, uint8_t flags, const void *data, uint8_t n)
{
    uint8_t head[HEAD_BYTES] = {0, 0, n, type, flags};
    add(head, sizeof head);
    add(data, n);
}

static void ask(void)
{
    uint8_t *begin = out + unsent;
    add(request, request_bytes);
    for (uint8_t *frame = begin; frame < out + unsent; frame += HEAD_BYTES + length(frame)) set_number(frame + 5, stream);
    stream += 2;
}

static void take(const uint8_t *frame, int asks)
{
    uint8_t type = frame[3], flags = frame[4];
    if (type == RESET || type == GOAWAY) errx(1, "the server ended a stream, or the connection (frame %d)", type);
    if (type == DATA) {
        consumed += (uint32_t)length(frame);
        messages++;
    }
    if (type == SETTINGS && !(flags & ACK)) add_frame(SETTINGS, ACK, "", 0);
    if (type == PING && !(flags & ACK)) add_frame(PING, ACK, frame + HEAD_BYTES, 8);
    if (type != HEADERS || !(flags & END_STREAM)) return;
    answers++;
    if (asks) ask();
}

static void take_all(int asks)
{
    size_t at = 0;
    while (filled - at >= HEAD_BYTES && filled - at >= HEAD_BYTES + length(received + at)) {
        take(received + at, asks);
        at += HEAD_BYTES + length(received + at);
    }
    filled -= at;
    memmove(received, received + at, filled);
    if (consumed >= 1 << 14) { /* a quarter of the window */
        uint8_t more[4];
        set_number(more, consumed);
        add_frame(WINDOW_UPDATE, 0, more, sizeof more);
        consumed = 0;
    }
}

static void send_all(void)
{
    for (size_t at = 0; at < unsent;) {
        ssize_t sent = send(fd, out + at, unsent - at, MSG_NOSIGNAL);
        if (sent < 0) err(1, "send");
        at += (size_t)sent;
    }
    unsent = 0;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    if (argc != 5) errx(2, "usage: client_floor PORT IN_FLIGHT FRAMES MILLISECONDS");
    int port = atoi(argv[1]), in_flight = atoi(argv[2]), one = 1;
    if (in_flight < 1 || in_flight > IN_FLIGHT_MAX) errx(2, "IN_FLIGHT is from 1 to %d", IN_FLIGHT_MAX);
    FILE *frames = fopen(argv[3], "rb");
    if (frames == NULL) err(1, "%s", argv[3]);
    request_bytes = fread(request, 1, sizeof request, frames);
    fclose(frames);
    if (request_bytes < HEAD_BYTES || request_bytes == sizeof request) errx(2, "a request has 9 to %zu bytes", sizeof request - 1);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) err(1, "connect to port %d", port);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int events = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (events < 0 || epoll_ctl(events, EPOLL_CTL_ADD, fd, &event)) err(1, "epoll");

    add("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    add_frame(SETTINGS, 0, "", 0);
    for (int i = 0; i < in_flight; i++) ask();
    send_all();
    double end = now_ms() + atof(argv[4]);
    while (answers < (stream - 1) / 2) {
        if (epoll_wait(events, &event, 1, 10000) != 1) errx(1, "no answer for 10 seconds, after %u", answers);
        ssize_t n = recv(fd, received + filled, sizeof received - filled, 0);
        if (n <= 0) err(1, "the server has closed the connection, after %u answers", answers);
        filled += (size_t)n;
        take_all(now_ms() < end);
        send_all();
    }
    if (messages < answers) errx(1, "the server refused %u of %u requests", answers - messages, answers);
    printf("%u\n", answers);
    return 0;
}
