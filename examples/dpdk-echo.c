/* A DPDK program that returns every frame received at its first port, with swapped MAC addresses. */
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct rte_eth_conf conf = {0};
    struct rte_mbuf *frames[32];
    uint16_t port = 0;

    if (rte_eal_init(argc, argv) < 0)
        return 1;
    struct rte_mempool *pool = rte_pktmbuf_pool_create("frames", 4095, 128, 0,
            RTE_MBUF_DEFAULT_BUF_SIZE, rte_socket_id());
    if (!pool || rte_eth_dev_configure(port, 1, 1, &conf) ||
            rte_eth_rx_queue_setup(port, 0, 256, rte_socket_id(), NULL, pool) ||
            rte_eth_tx_queue_setup(port, 0, 256, rte_socket_id(), NULL) ||
            rte_eth_dev_start(port))
        return 1;
    puts("port 0 is up");
    fflush(stdout);
    for (;;) {
        uint16_t received = rte_eth_rx_burst(port, 0, frames, 32);
        for (uint16_t i = 0; i < received; i++) {
            struct rte_ether_hdr *head = rte_pktmbuf_mtod(frames[i], struct rte_ether_hdr *);
            struct rte_ether_addr source = head->src_addr;
            head->src_addr = head->dst_addr;
            head->dst_addr = source;
        }
        uint16_t sent = rte_eth_tx_burst(port, 0, frames, received);
        rte_pktmbuf_free_bulk(frames + sent, received - sent);
    }
}
