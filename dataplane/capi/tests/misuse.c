/* Every misuse that the library can see: a code and a message, and nothing breaks. */
#include <dray.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(call, code, part) expect(__LINE__, (call), (code), (part))

static void expect(int line, int got, int code, const char *part)
{
    const char *text = dray_error();
    if (got != code || (code < 0 && !strstr(text, part))) {
        fprintf(stderr, "line %d: %d instead of %d, \"%s\"\n", line, got, code, text);
        exit(1);
    }
}

static dray_port a, b;
static int calls;

static size_t keep_all(void *context, const dray_frame *frames, size_t count)
{
    (void)context, (void)frames, (void)count;
    calls++;
    return 0;
}

static size_t reenter(void *context, const dray_frame *frames, size_t count)
{
    dray_facts facts;
    (void)context;
    EXPECT(dray_receive(b, keep_all, NULL), DRAY_ERR_BUSY, "in use");
    EXPECT(dray_close(b), DRAY_ERR_BUSY, "in use");
    EXPECT(dray_arm(b, true), DRAY_ERR_BUSY, "in use");
    EXPECT(dray_get_facts(b, &facts), DRAY_ERR_BUSY, "in use");
    EXPECT(dray_transmit(b, frames, 1), 1, "");
    calls++;
    return count + 100; /* more than there are: all of them */
}

static void *other_thread(void *context)
{
    dray_facts facts;
    dray_port own;
    EXPECT(dray_close(a), DRAY_ERR_THREAD, "another thread");
    EXPECT(dray_receive(a, keep_all, NULL), DRAY_ERR_THREAD, "another thread");
    EXPECT(dray_transmit(a, NULL, 0), DRAY_ERR_THREAD, "another thread");
    EXPECT(dray_wait(&a, 1, 0), DRAY_ERR_THREAD, "another thread");
    EXPECT(dray_event(a), DRAY_ERR_THREAD, "another thread");
    EXPECT(dray_arm(a, true), DRAY_ERR_THREAD, "another thread");
    EXPECT(dray_get_facts(a, &facts), DRAY_ERR_THREAD, "another thread");
    EXPECT(dray_open("null:", &own), 0, ""); /* closed when the thread ends */
    return context;
}

int main(int argc, char **argv)
{
    unsigned char bytes[9019] = {0};
    dray_frame frame = {bytes, 60};
    dray_facts facts;
    dray_port port;
    char uri[512];
    (void)argc;

    EXPECT(dray_open(NULL, &port), DRAY_ERR_NULL, "uri");
    EXPECT(dray_open("null:", NULL), DRAY_ERR_NULL, "port");
    EXPECT(dray_open("foo:eth0", &port), DRAY_ERR_URI, "raw:eth0");
    EXPECT(port == 0, 1, "");
    EXPECT(dray_open("raw:eth0?batch=0", &port), DRAY_ERR_URI, "1 to 256");
    EXPECT(dray_open("raw:\xff\xfe", &port), DRAY_ERR_URI, "byte 4 is not UTF-8");
    EXPECT(dray_open("unix:/nowhere/a?peer=/b", &port), DRAY_ERR_OPEN, "/nowhere/a");

    snprintf(uri, sizeof uri, "unix:%s/a?peer=%s/b", argv[1], argv[1]);
    EXPECT(dray_open(uri, &a), 0, "");
    snprintf(uri, sizeof uri, "unix:%s/b?peer=%s/a", argv[1], argv[1]);
    EXPECT(dray_open(uri, &b), 0, "");

    EXPECT(dray_receive(a, NULL, NULL), DRAY_ERR_NULL, "take");
    EXPECT(dray_transmit(a, NULL, 1), DRAY_ERR_NULL, "frames");
    EXPECT(dray_transmit(a, &frame, 257), DRAY_ERR_ARGUMENT, "257");
    EXPECT(dray_transmit(a, NULL, 0), 0, "");
    frame.len = 0;
    EXPECT(dray_transmit(a, &frame, 1), DRAY_ERR_ARGUMENT, "1 to 9018");
    frame.len = sizeof bytes;
    EXPECT(dray_transmit(a, &frame, 1), DRAY_ERR_ARGUMENT, "9019 bytes");
    frame.data = NULL;
    EXPECT(dray_transmit(a, &frame, 1), DRAY_ERR_ARGUMENT, "NULL");
    EXPECT(dray_wait(NULL, 1, 0), DRAY_ERR_NULL, "ports");
    EXPECT(dray_wait(&a, 0, 0), DRAY_ERR_ARGUMENT, "0 ports");
    EXPECT(dray_wait(&a, 1, -1), DRAY_ERR_ARGUMENT, "-1 ms");
    EXPECT(dray_get_facts(a, NULL), DRAY_ERR_NULL, "facts");

    /* No frame is there; then one is lent until it is taken. */
    EXPECT(dray_wait(&b, 1, 30), 0, "");
    EXPECT(dray_receive(b, keep_all, NULL), 0, "");
    frame.data = bytes, frame.len = 60;
    EXPECT(dray_transmit(a, &frame, 1), 1, "");
    EXPECT(dray_wait(&b, 1, 5000), 1, "");
    struct pollfd fd = {dray_event(b), POLLIN, 0};
    EXPECT(poll(&fd, 1, 0), 1, "");
    EXPECT(dray_receive(b, keep_all, NULL), 1, "");
    EXPECT(dray_receive(b, reenter, NULL), 1, "");
    EXPECT(dray_receive(b, keep_all, NULL), 0, "");
    EXPECT(calls, 2, "");
    EXPECT(dray_get_facts(b, &facts), 0, "");
    EXPECT(facts.received == 1 && facts.transmitted == 1 && facts.running == 1, 1, "");

    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);

    EXPECT(dray_close(a), 0, "");
    EXPECT(dray_close(a), DRAY_ERR_HANDLE, "not open");
    EXPECT(dray_receive(a, keep_all, NULL), DRAY_ERR_HANDLE, "not open");
    EXPECT(dray_close(0), DRAY_ERR_HANDLE, "not open");
    EXPECT(dray_close(UINT64_MAX), DRAY_ERR_HANDLE, "not open");
    EXPECT(dray_open("null:", &port), 0, "");
    EXPECT(port != a, 1, "");
    /* A port that is polled has nothing to sleep on. */
    EXPECT(dray_wait((dray_port[]){b, port}, 2, 5000), 1, "");
    EXPECT(dray_close(b), 0, "");
    EXPECT(dray_close(port), 0, "");
    return 0;
}
