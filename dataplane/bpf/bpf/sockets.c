/* Redirects the frames of each queue of an interface to the AF_XDP socket of that queue. */
#include "bpf.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

/* AF_XDP sockets by queue. */
struct {
    NUMBER(type, BPF_MAP_TYPE_XSKMAP);
    TYPE(key, __u32);
    TYPE(value, __u32);
    NUMBER(max_entries, 256);
} sockets SEC(".maps");

/* UDP destination ports to redirect; if there are no ports, all frames are redirected. */
#define PORTS_MAX 8
const volatile __u32 udp_port_count = 0;
const volatile __u16 udp_ports[PORTS_MAX];

struct vlan_tag {
    __be16 tci;
    __be16 type;
};

/* Returns 1 if the frame is a UDP datagram to one of the ports: unfragmented IPv4, or IPv6 without
 * extension headers, after at most one VLAN tag. */
INLINE int is_ours(void *start, void *end)
{
    struct ethhdr *ethernet = start;
    struct udphdr *udp;

    if ((void *)(ethernet + 1) > end)
        return 0;
    void *next = ethernet + 1;
    __be16 type = ethernet->h_proto;
    if (type == from_big_endian(ETH_P_8021Q)) {
        struct vlan_tag *tag = next;
        if ((void *)(tag + 1) > end)
            return 0;
        type = tag->type;
        next = tag + 1;
    }
    if (type == from_big_endian(ETH_P_IP)) {
        struct iphdr *ip = next;
        if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP)
            return 0;
        /* Only the first fragment has the ports. */
        if (ip->frag_off & from_big_endian(0x3fff))
            return 0;
        udp = next + ip->ihl * 4;
    } else if (type == from_big_endian(ETH_P_IPV6)) {
        struct ipv6hdr *ip = next;
        if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
            return 0;
        udp = (void *)(ip + 1);
    } else {
        return 0;
    }
    if ((void *)(udp + 1) > end)
        return 0;
    __u16 port = from_big_endian(udp->dest);
    for (__u32 i = 0; i < PORTS_MAX; i++)
        if (i < udp_port_count && udp_ports[i] == port)
            return 1;
    return 0;
}

/* xdp.frags: the program supports multi-buffer frames. */
SEC("xdp.frags")
int dray_sockets(struct xdp_md *frame)
{
    void *start = (void *)(long)frame->data;
    void *end = (void *)(long)frame->data_end;

    if (udp_port_count > 0 && !is_ours(start, end))
        return XDP_PASS;
    /* A frame at a queue without a socket goes on to the kernel. */
    return bpf_redirect_map(&sockets, frame->rx_queue_index, XDP_PASS);
}
