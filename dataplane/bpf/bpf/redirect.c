/* Redirects frames from interface to interface before the kernel's network stack: in pairs, or by
 * destination MAC address. */
#include "bpf.h"

#include <linux/if_ether.h>

/* Peer interface of each interface, in pairs. */
struct {
    NUMBER(type, BPF_MAP_TYPE_DEVMAP_HASH);
    TYPE(key, __u32);
    TYPE(value, struct bpf_devmap_val);
    NUMBER(max_entries, 256);
} pairs SEC(".maps");

/* Member interfaces of a learning switch, each by its index. */
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
    /* Index of the interface that its frames arrive at. */
    __u32 interface;
    __u32 unused;
    /* Time of its last frame on the monotonic clock, accurate to about a second. */
    __u64 seen_ns;
};

/* Interface of each station. The control side writes the entries; only the time is updated here. */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    TYPE(key, struct address);
    TYPE(value, struct station);
    NUMBER(max_entries, 16384);
} stations SEC(".maps");

/* Message to the control side: a station, and the interface at which it was seen. */
struct sighting {
    struct address station;
    __u32 interface;
    __u32 unused;
};

struct {
    NUMBER(type, BPF_MAP_TYPE_RINGBUF);
    NUMBER(max_entries, 1 << 18);
} sightings SEC(".maps");

#define SECOND_NS 1000000000ull

/* Maximum number of sightings per interface and second, so that a host that forges source addresses
 * cannot crowd out the sightings of other interfaces. */
#define NEWS_MAX 512

struct news {
    __u64 since_ns;
    __u32 told;
    __u32 unused;
};

/* Rate limits by interface; the control side creates the entries. */
struct {
    NUMBER(type, BPF_MAP_TYPE_HASH);
    TYPE(key, __u32);
    TYPE(value, struct news);
    NUMBER(max_entries, 256);
} news SEC(".maps");

/* Returns 1 if another sighting of `interface` may be sent to the control side. CPUs that ask at the
 * same time may exceed the limit by a few, which does no harm. */
INLINE int may_tell(__u32 interface)
{
    struct news *of = bpf_map_lookup_elem(&news, &interface);
    if (!of)
        return 0;
    __u64 now = bpf_ktime_get_coarse_ns();
    if (now - of->since_ns > SECOND_NS) {
        of->since_ns = now;
        of->told = 0;
    }
    if (of->told >= NEWS_MAX)
        return 0;
    of->told++;
    return 1;
}

/* xdp.frags: the program supports multi-buffer frames. */
SEC("xdp.frags")
int dray_pairs(struct xdp_md *frame)
{
    return bpf_redirect_map(&pairs, frame->ingress_ifindex, XDP_DROP);
}

/* Reports the sender to the control side if it is new or has moved. */
INLINE void see(const struct address *sender, __u32 interface)
{
    struct station *station = bpf_map_lookup_elem(&stations, sender);
    if (station && station->interface == interface) {
        __u64 now = bpf_ktime_get_coarse_ns();
        /* At most once a second, because every CPU reads this cache line. */
        if (now - station->seen_ns > SECOND_NS)
            station->seen_ns = now;
        return;
    }
    if (!may_tell(interface))
        return;
    struct sighting sighting = {.station = *sender, .interface = interface};
    /* If the ring is full, the next frame reports it. */
    bpf_ringbuf_output(&sightings, &sighting, sizeof(sighting), 0);
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
    /* A group address is not a valid sender. */
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

/* Passes every frame: a veth accepts redirected frames only if it has an XDP program. */
SEC("xdp.frags")
int dray_pass(struct xdp_md *frame)
{
    (void)frame;
    return XDP_PASS;
}
