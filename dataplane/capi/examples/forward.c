/* Forwards frames between two ports, both ways, until SIGINT or SIGTERM.
   cc -O2 forward.c $(pkg-config --cflags --libs dray) -o forward */
#include <dray.h>
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

struct way {
    dray_port to;
    int failed;
};

static size_t take(void *context, const dray_frame *frames, size_t count)
{
    struct way *way = context;
    int taken = dray_transmit(way->to, frames, count);
    way->failed = taken < 0;
    return way->failed ? 0 : count; /* frames that find no room are dropped */
}

static int fail(void)
{
    fprintf(stderr, "forward: %s\n", dray_error());
    return 1;
}

int main(int argc, char **argv)
{
    dray_port ports[2];
    if (argc != 3) {
        fprintf(stderr, "usage: forward URI URI\n");
        return 2;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    for (int i = 0; i < 2; i++)
        if (dray_open(argv[1 + i], &ports[i]) < 0)
            return fail();
    while (!stop) {
        int lent = 0;
        for (int i = 0; i < 2; i++) {
            struct way way = {ports[1 - i], 0};
            int n = dray_receive(ports[i], take, &way);
            if (n < 0 || way.failed)
                return fail();
            lent += n;
        }
        if (lent == 0 && dray_wait(ports, 2, 1000) < 0)
            return fail();
    }
    return dray_close(ports[0]) || dray_close(ports[1]) ? fail() : 0;
}
