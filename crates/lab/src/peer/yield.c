/* Lets DPDK programs share a CPU. Their threads poll without end, so two of them on one CPU take
 * turns of whole scheduler ticks, milliseconds in which a ring of 256 frames overflows a hundred
 * times over. Loaded into such a program (LD_PRELOAD), this gives the CPU away when there is no
 * work: when every queue in turn was found empty, and when a ring's worth of frames was sent.
 *
 * The functions of DPDK are found by name, so that nothing of it is needed to build this. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* rte_rx_callback_fn and rte_tx_callback_fn of rte_ethdev.h */
typedef uint16_t rx_callback(uint16_t port, uint16_t queue, void **frames, uint16_t count,
                             uint16_t max, void *argument);
typedef uint16_t tx_callback(uint16_t port, uint16_t queue, void **frames, uint16_t count,
                             void *argument);

static unsigned long ports, queues, ring;

static uint16_t on_receive(uint16_t port, uint16_t queue, void **frames, uint16_t count,
                           uint16_t max, void *argument)
{
    static __thread unsigned long empty;
    (void)port, (void)queue, (void)frames, (void)max, (void)argument;
    if (count > 0) {
        empty = 0;
    } else if (++empty >= ports * queues) {
        empty = 0;
        sched_yield();
    }
    return count;
}

static uint16_t on_transmit(uint16_t port, uint16_t queue, void **frames, uint16_t count,
                            void *argument)
{
    static __thread unsigned long sent;
    (void)port, (void)queue, (void)frames, (void)argument;
    sent += count;
    if (sent >= ring) {
        sent = 0;
        sched_yield();
    }
    return count;
}

/* Ports come up in their own time; a queue takes a callback as soon as there is one. */
static void *attach(void *unused)
{
    const void *(*add_rx)(uint16_t, uint16_t, rx_callback *, void *) = NULL;
    const void *(*add_tx)(uint16_t, uint16_t, tx_callback *, void *) = NULL;
    *(void **)&add_rx = dlsym(RTLD_DEFAULT, "rte_eth_add_rx_callback");
    *(void **)&add_tx = dlsym(RTLD_DEFAULT, "rte_eth_add_tx_callback");
    if (add_rx == NULL || add_tx == NULL)
        return unused;
    for (unsigned long port = 0; port < ports; port++) {
        for (unsigned long queue = 0; queue < queues; queue++) {
            while (add_rx(port, queue, on_receive, NULL) == NULL)
                usleep(1000);
            while (add_tx(port, queue, on_transmit, NULL) == NULL)
                usleep(1000);
        }
    }
    return unused;
}

static unsigned long number(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 1 : strtoul(text, NULL, 10);
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    ports = number("DRAY_YIELD_PORTS");
    queues = number("DRAY_YIELD_QUEUES");
    ring = number("DRAY_YIELD_RING");
    if (pthread_create(&thread, NULL, attach, NULL) == 0)
        pthread_detach(thread);
}
