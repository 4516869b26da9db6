/* Passes frames from interface to interface, before the kernel's network stack sees them: in pairs, or
 * by the station that they are for. */
#include "bpf.h"

#include <linux/if_ether.h>

/* Where the frames of an interface go, in pairs. */
struct {
    NUMBER(type, BPF_MAP_TYPE_DEVMAP_HASH);
    TYPE(key, __u32);
    TYPE(value, struct bpf_devmap_val);
    NUMBER(max_entries, 256);
} pairs SEC(".maps");

/* The interfaces that belong together, each by its index. */
struct {
    NUMBER(type, BPF_MAP_TYPE_DEVMAP_HASH);
    TYPE(key, __u32);
    TYPE(value, struct bpf_devmap_val);
    NUMBER(max_entries, 256);
} members SEC(".maps");

struct address {
    __u8 bytes[ETH_ALEN];
    __u8 zero[2];
};

struct station {
    /* Index of the interface it is behind. */
    __u32 interface;
    __u32 unused;
    /* When it sent last, on the monotonic clock, to the second or so. */
    __u64 seen_ns;
};

/* Who is where. The control side writes it; here only the time is brought up to date. */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    TYPE(key, struct address);
    TYPE(value, struct station);
    NUMBER(max_entries, 16384);
} stations SEC(".maps");

/* What the control side is told: a station, and the interface at which it was seen. */
struct sighting {
    struct address station;
    __u32 interface;
    __u32 unused;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    NUMBER(max_entries, 1 << 16);
} sightings SEC(".maps");

#define SECOND_NS 1000000000ull

/* xdp.frags: frames may consist of several parts. */
SEC("xdp.frags")
int dray_pairs(struct xdp_md *frame)
{
    return bpf_redirect_map(&pairs, frame->ingress_ifindex, XDP_DROP);
}

/* Has the control side learn where the sender is, where that is news. */
INLINE void see(const struct address *sender, __u32 interface)
{
    struct station *station = bpf_map_lookup_elem(&stations, sender);
    if (station && station->interface == interface) {
        __u64 now = bpf_ktime_get_coarse_ns();
        /* Seldom, for every CPU reads this. */
        if (now - station->seen_ns > SECOND_NS)
            station->seen_ns = now;
        return;
    }
    struct sighting news = {.station = *sender, .interface = interface};
    /* Where it finds no room the next frame tells it. */
    bpf_ringbuf_output(&sightings, &news, sizeof(news), 0);
}

SEC("xdp.frags")
int dray_learning(struct xdp_md *frame)
{
    void *end = (void *)(long)frame->data_end;
    struct ethhdr *ethernet = (void *)(long)frame->data;
    struct address sender = {}, receiver = {};

    if ((void *)(ethernet + 1) > end)
        return XDP_DROP;
    __builtin_memcpy(receiver.bytes, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(sender.bytes, ethernet->h_source, ETH_ALEN);
    /* A group sends nothing. */
    if (!(sender.bytes[0] & 1))
        see(&sender, frame->ingress_ifindex);
    if (!(receiver.bytes[0] & 1)) {
        struct station *station = bpf_map_lookup_elem(&stations, &receiver);
        if (station) {
            if (station->interface == frame->ingress_ifindex)
                return XDP_DROP;
            return bpf_redirect_map(&members, station->interface, XDP_DROP);
        }
    }
    return bpf_redirect_map(&members, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

/* Does nothing: a veth takes redirected frames only where there is a program. */
SEC("xdp.frags")
int dray_pass(struct xdp_md *frame)
{
    (void)frame;
    return XDP_PASS;
}
